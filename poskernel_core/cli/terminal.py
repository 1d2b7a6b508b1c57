r"""What the command line prints: nothing in it may command the terminal.

Names of models, files and entries come from strangers. A control character in them could move the
cursor, colour the screen or hide a line; it is printed as ``\x1b`` instead.
"""

from __future__ import annotations

import sys
import unicodedata

__all__ = ["complain", "printable", "say"]

LONGEST = 1000
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of characters that are obeyed and not seen: among them the escape
character, the marks that turn the direction of writing, and half characters."""


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text whose control characters are written out; line ends stay if ``lines``."""
    if text.isprintable():
        return text
    return "".join(_shown(character, lines) for character in text)


def say(text: str, *, lines: bool = False) -> None:
    """Print a text, on one line unless ``lines``."""
    print(printable(text, lines=lines))


def complain(text: object) -> None:
    """Print a text on one line of standard error, without the middle of a very long one."""
    line = printable(str(text))
    whole = len(line) < LONGEST
    print(line if whole else f"{line[:600]} ... {line[-300:]}", file=sys.stderr)


def _shown(character: str, lines: bool) -> str:
    kept = unicodedata.category(character) not in UNSEEN or (lines and character == "\n")
    return character if kept else character.encode("unicode_escape", "surrogatepass").decode()
