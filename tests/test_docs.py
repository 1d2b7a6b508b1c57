"""The README tells of what is declared: its pages, their pictures, the measures of the grid."""

import re
from pathlib import Path

from pages.shared.measures import MEASURES
from poskernel_core.common.limits import BOUNDS
from poskernel_core.common.renamed import VARIABLES
from tests.test_app_script import places
from tools.screenshots import SCHEMES, shots

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text("utf-8")


def part(heading: str) -> str:
    """The text under a heading, as far as the next of its level."""
    level = heading.partition(" ")[0]
    return re.split(rf"^{level} ", TEXT.split(f"\n{heading}\n")[1], flags=re.MULTILINE)[0]


def test_every_page_has_its_heading() -> None:
    """In the order of the navigation; what follows the pages is about all of them."""
    told = re.findall(r"^### (.*)$", part("## How to read each page"), re.MULTILINE)

    declared = [place.title for place in places()]
    assert declared == told[: len(declared)]


def test_measures() -> None:
    """All that the grid can be coloured by, but the first, which is the page's own."""
    told = re.search(r"\*\*Colour heads by\*\*[^:]*: (.*?)\.\n", TEXT, re.DOTALL)

    assert told is not None
    _, *declared = MEASURES
    assert ", ".join(declared) == " ".join(told[1].split())


def test_pictures_are_those_of_pages() -> None:
    """One of each page in either scheme lies there, no other, and the README shows known ones."""
    declared = {f"{shot.name}-{scheme}.png" for shot in shots() for scheme in SCHEMES}

    assert declared == {file.name for file in (ROOT / "docs" / "screenshots").iterdir()}
    shown = re.findall(r"\(docs/screenshots/(.*?)\)", TEXT)
    assert shown
    assert set(shown) <= declared


def test_every_setting_is_in_the_table() -> None:
    """Each variable that the code or the images' files read, but the bounds, which have their own.

    Those of the proxy and of compose are told in docs/hosting.md.
    """
    hosting = (ROOT / "docs" / "hosting.md").read_text("utf-8")
    table = "\n".join(
        line.rsplit("|", 3)[0] for line in part("## Configuration").splitlines() if line[:1] == "|"
    )
    folders = ("poskernel_core", "pages", "serving")
    code = "".join(
        file.read_text("utf-8") for each in folders for file in (ROOT / each).rglob("*.py")
    )
    read = set(re.findall(r"\bPOSKERNEL_[A-Z_]+[A-Z]\b", code)) - VARIABLES.keys()
    read -= {bound.variable for bound in BOUNDS.values()}

    assert [] == sorted(name for name in read if f"`{name}`" not in table)
    files = [ROOT / "compose.yaml", *(ROOT / "deploy").iterdir()]
    others = {
        name
        for file in files
        for name in re.findall(r"\{\$?([A-Z][A-Z0-9_]+)", file.read_text("utf-8"))
    }
    assert {"POSKERNEL_HOST", "POSKERNEL_SITE"} <= others
    assert [] == sorted(name for name in others if name not in TEXT + hosting)
