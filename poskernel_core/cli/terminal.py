r"""Printing to the terminal, safe against control characters in untrusted text.

Names of models, files and entries are untrusted. A control character in them could move the
cursor, colour the screen or hide a line, so it is printed as ``\x1b`` instead.
"""

import io
import os
import sys
import unicodedata
from typing import TextIO

from poskernel_core.common.errors import NO_START

MAX_LINE = 1000
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of invisible control characters, among them the escape character, marks that
change the writing direction, and half characters."""


def open_streams() -> None:
    """Make the standard streams usable for any text.

    A closed stream is redirected to the null device, so that no file opened later gets the stream's
    descriptor. Characters that the encoding lacks are escaped.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor: this stream's
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def mute(stream: TextIO) -> None:
    """Redirect a broken stream, with its buffered text, to the null device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: str, *, lines: bool = False) -> str:
    """Escape the control characters of a text; line ends are kept if ``lines``."""
    kept = {"\n"} if lines else {""}
    return "".join(
        character.encode("unicode_escape", "surrogatepass").decode()
        if character not in kept and unicodedata.category(character) in UNSEEN
        else character
        for character in text
    )


def say(text: str, *, lines: bool = False) -> None:
    """Print a text, on a single line unless ``lines``."""
    print(printable(text, lines=lines))


def status(text: object) -> None:
    """Print a text on one line of standard error; the middle of a very long text is left out."""
    line = printable(str(text).replace(NO_START, "--no-start-token"))
    fits = len(line) < MAX_LINE
    _print_aside(line if fits else f"{line[:600]} ... {line[-300:]}")


def show_progress(text: str) -> None:
    """Overwrite the progress line on standard error, if it is a terminal."""
    if sys.stderr.isatty():
        _print_aside(f"\r{printable(text):<78}", end="" if text else "\r")


def _print_aside(text: str, end: str = "\n") -> None:
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        mute(sys.stderr)
