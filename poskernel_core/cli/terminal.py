r"""What the command line prints: nothing in it may command the terminal.

Names of models, files and entries come from strangers. A control character in them could move the
cursor, colour the screen or hide a line; it is printed as ``\x1b`` instead.
"""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from typing import TextIO

__all__ = ["mute", "open_streams", "printable", "say", "show_progress", "status"]

MAX_LINE = 1000
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of characters that are obeyed and not seen: among them the escape
character, the marks that turn the direction of writing, and half characters."""


def open_streams() -> None:
    """Have standard streams that take every text.

    One that is closed leads nowhere, so that no file of ours gets its number; letters that its
    encoding lacks are written out.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def mute(stream: TextIO) -> None:
    """Let a stream that cannot be written to lead nowhere, with what it still holds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text whose control characters are written out; line ends stay if ``lines``."""
    if text.isprintable():
        return text
    return "".join(_shown(character, lines) for character in text)


def say(text: str, *, lines: bool = False) -> None:
    """Print a text, on one line unless ``lines``."""
    print(printable(text, lines=lines))


def status(text: object) -> None:
    """Print a text on one line of standard error, without the middle of a very long one."""
    line = printable(str(text))
    whole = len(line) < MAX_LINE
    _print_aside(line if whole else f"{line[:600]} ... {line[-300:]}")


def show_progress(text: str) -> None:
    """Print one line of progress over the last one, on a terminal only; nothing clears it."""
    if sys.stderr.isatty():
        _print_aside(f"\r{printable(text):<78}", end="" if text else "\r")


def _print_aside(text: str, end: str = "\n") -> None:
    """Print a text to standard error, or nowhere where that takes no more."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        mute(sys.stderr)


def _shown(character: str, lines: bool) -> str:
    kept = unicodedata.category(character) not in UNSEEN or (lines and character == "\n")
    return character if kept else character.encode("unicode_escape", "surrogatepass").decode()
