"""The first start in a browser: an empty cache, and pages that are there without a computation."""

import pytest
from playwright.sync_api import expect

from poskernel_core.catalog import BUNDLED_MODELS
from tests.server import serve
from tests.visit import PATIENCE, SETTLED, no_trouble

pytestmark = pytest.mark.browser

PAGES = (
    "", "positional_kernels", "previous_token", "contextual", "helix", "interventions",
    "induction_recency", "position_vs_token", "contextual_neurons", "methods",
)  # fmt: skip
COUNT_BARS = """
window.bars = 0;
new MutationObserver(() => {
  window.bars += document.querySelectorAll("[data-testid=stProgress]").length;
}).observe(document, {childList: true, subtree: true});
"""


@pytest.fixture(scope="module")
def cold(tmp_path_factory):
    """A server with an empty cache, and what comes with the project."""
    root = tmp_path_factory.mktemp("cold")
    with serve(root / "cache", root / "server.log", shipped=True) as started:
        yield started


def open_page(page, address):
    """Open an address and wait until it is drawn."""
    page.set_default_timeout(PATIENCE)
    page.add_init_script(COUNT_BARS)
    page.goto(address)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.wait_for_selector(SETTLED)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)


@pytest.mark.parametrize("model", BUNDLED_MODELS)
def test_no_progress(page, cold, model):
    """No page of a bundled model shows a progress bar, not for a moment; no worker is started."""
    for name in PAGES:
        open_page(page, f"{cold.url}/{name}?model={model}")
        assert 0 == page.evaluate("window.bars"), name
        no_trouble(page)
    assert not (cold.cache / "worker.log").exists()


def test_a_part_says_so(page, cold):
    """On every page of GPT-2's first layer; what it cannot answer is one sentence."""
    for name in PAGES:
        open_page(page, f"{cold.url}/{name}?model=gpt2-small-layer0")
        expect(
            page.get_by_test_id("stMain").get_by_text("token embeddings are random")
        ).to_be_visible()
    for name in ("interventions", "induction_recency", "contextual_neurons"):
        open_page(page, f"{cold.url}/{name}?model=gpt2-small-layer0")
        expect(page.get_by_text("and this needs them: choose a whole model")).to_have_count(1)
