"""Pictures for a paper of all that pages draw."""

import json
from pathlib import Path
from typing import Any

import pytest

from pages import NAMES
from pages.shared.cards import card
from poskernel_core.export.printing import WIDTHS
from tests.support.bound import opened, opened_as_linked


@pytest.fixture
def sheets(shipped, monkeypatch) -> dict[str, Any]:
    found = {}

    def keep(name: str, figure: Any, shown: Any, words: object) -> None:
        at = f"{shown.result.provenance['model']} {name}"
        for mm in WIDTHS if figure or shown.grids else ():
            for place, sheet in enumerate(card._sheets(figure, shown, mm)):
                found[f"{at} {place} {mm}"] = sheet

    monkeypatch.setattr(card, "_menu", keep)
    for page in NAMES:
        for app in (opened(page), opened_as_linked(page)):
            assert [] == [each.value for each in app.exception]
    return found


def test_collect(sheets):
    Path("/tmp/w/figures-sheets.json").write_text(json.dumps(sheets))
    print(len(sheets))
