"""The first link to a page of a server that was just started."""

import subprocess
import sys

import pytest
from playwright.sync_api import Page, expect

from tests.support.server import ROOT, environment, serve

WATCH = """
new MutationObserver(() => {
  if (document.body?.innerText.includes("Page not found")) window.flashed = true;
}).observe(document, { childList: true, subtree: true, characterData: true });
"""


@pytest.mark.browser
def test_the_first_deep_link_finds_its_page(page: Page, tmp_path):
    """No notice of Streamlit's own that the page does not exist, not even for a moment."""
    page.add_init_script(WATCH)
    with serve(tmp_path / "cache", tmp_path / "server.log") as server:
        page.goto(server.link("/methods"))
        expect(page.get_by_role("heading", level=1)).to_have_text("Methods")
        assert not page.evaluate("window.flashed === true")


def test_the_server_leaves_the_folder_of_pages_alone(tmp_path):
    """Before any script has run."""
    code = (
        "import serve\n"
        "from streamlit.runtime.pages_manager import PagesManager\n"
        "print(PagesManager.uses_pages_directory)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "False" == done.stdout.split()[-1]
