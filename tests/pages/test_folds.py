"""Folds whose content asks for a run: however quickly they are toggled, they stay as left."""

import pytest
from playwright.sync_api import expect

from tests.support.visit import settle, visit

pytestmark = pytest.mark.browser

FOLD = ".st-key-all-heads"
HASTE = (0, 30, 60, 90)  # milliseconds


def test_a_fold_stays_as_it_was_last_toggled(page, still, shipped_only):
    """It is filled once it has been seen open."""
    visit(page, f"{still.url}/?model=demo-gpt2")
    fold = page.locator(f"{FOLD} details")
    summary = fold.locator("summary")
    expect(fold).not_to_have_attribute("open", "")
    for haste in HASTE:
        for clicks in (2, 3, 2, 1):
            before = fold.get_attribute("open") is not None
            for _ in range(clicks):
                summary.dispatch_event("click")
                page.wait_for_timeout(haste)
            settle(page)
            now = fold.get_attribute("open") is not None
            assert before != now if clicks % 2 else before == now, (haste, clicks)
    if fold.get_attribute("open") is None:
        summary.click()
    expect(page.locator(f"{FOLD} [data-testid=stDataFrame]")).to_be_visible()
