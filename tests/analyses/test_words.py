"""Every explanation beside a figure is Markdown that the pages can set: formulas above all."""

import importlib
import re

import pytest

from pages.shared.cards.explained import Explanation
from pages.shared.grid.measures import MEASURES
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.definitions import methods
from poskernel_core.analyses.views import topic
from tests.support import ROOT

MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for file in sorted((ROOT / "pages").rglob("*.py"))
]
DISPLAY = re.compile(r"^\$\$\n(.+?)\n\$\$$", re.MULTILINE | re.DOTALL)


def explanations() -> dict[str, str]:
    """Every text that a page sets as Markdown with formulas, by where it comes from."""
    found = {}
    for name in MODULES:
        for each, value in vars(importlib.import_module(name)).items():
            if isinstance(value, Explanation):
                found |= {f"{name} {each}, reading": value.reading, f"{name} {each}": value.formula}
    for name in ANALYSES:
        for view in getattr(topic(name), "VIEWS", {}).get(name, ()):
            found[f"{name} {view.shape}, reading"] = view.reading
    for title, measure in MEASURES.items():
        found[f"{title}, formula"] = measure.words().formula
    for method in methods():
        found[f"method {method.name}"] = method.formula
    return found


def unset(text: str) -> list[str]:
    """What of a text would be shown as it is: a display formula that does not stand alone."""
    rest = DISPLAY.sub("", text)
    odd = [p for p in rest.split("\n\n") if p.replace(r"\$", "").count("$") % 2]
    return re.findall(r".*\$\$.*", rest) + odd


@pytest.mark.parametrize(("name", "text"), explanations().items())
def test_formulas_can_be_set(name, text):
    assert [] == unset(text), name


@pytest.mark.parametrize("broken", ["$$a +\nb$$", "Text $$a$$", "one $a and no more", "$$\na"])
def test_formulas_that_cannot_be_set_are_found(broken):
    assert unset(broken)
