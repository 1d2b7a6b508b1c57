"""Folds whose content asks for a run: however quickly they are toggled, they stay as left."""

import pytest
from playwright.sync_api import expect

from tests.support.visit import settle, visit

pytestmark = pytest.mark.browser

FOLD = ".st-key-all-heads"
HASTE = (20, 50, 90)  # milliseconds


def test_a_fold_stays_as_it_was_last_toggled(page, still, shipped_only):
    """It is filled once it has been seen open."""
    visit(page, f"{still.url}/?model=demo-gpt2")
    summary = page.locator(f"{FOLD} summary")
    is_open = False
    for haste in HASTE:
        for clicks in (2, 3, 2, 1, 4, 3):
            for _ in range(clicks):
                summary.dispatch_event("click")
                page.wait_for_timeout(haste)
            is_open ^= clicks % 2 == 1
            settle(page)
            arrow = f"keyboard_arrow_{'down' if is_open else 'right'}"
            assert arrow in summary.inner_text(), (haste, clicks)
    assert is_open
    expect(page.locator(f"{FOLD} [data-testid=stDataFrame]")).to_be_visible()
