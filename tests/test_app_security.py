"""In a browser: no page needs more than the content security policy allows."""

import ast

import pytest
from playwright.sync_api import expect

from tests.server import ROOT
from tests.visit import cell, parameter, settle, visit

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NOTE = """window.violations = [];
document.addEventListener("securitypolicyviolation",
  event => window.violations.push(`${event.effectiveDirective} ${event.blockedURI}`));"""
PAGES = (
    "/", "/positional_kernels", "/previous_token", "/contextual", "/helix", "/interventions",
    "/induction_recency", "/position_vs_token", "/contextual_neurons", "/methods",
)  # fmt: skip


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args):
    """Here the policy is in force."""
    return {**browser_context_args, "bypass_csp": False}


def test_all_pages_are_here():
    """The list above names as many pages as `app.py`."""
    calls = ast.walk(ast.parse((ROOT / "app.py").read_text(encoding="utf-8")))
    pages = [c for c in calls if isinstance(c, ast.Call) and ast.unparse(c.func) == "st.Page"]

    assert len(pages) == len(PAGES)


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_refused(page, server, path):
    """Scripts, styles, figures, fonts, the socket: all come from where the policy says."""
    outside = []
    page.on("request", lambda request: outside.append(request.url))
    page.add_init_script(NOTE)

    visit(page, server.link(path))

    assert [] == page.evaluate("violations")
    ours = (server.url, server.url.replace("http", "ws"), "data:", "blob:")
    assert [] == [address for address in outside if not address.startswith(ours)]


def test_a_click_and_a_download(page, server):
    """The grid's own script runs, and files made in the page can be had."""
    page.add_init_script(NOTE)
    visit(page, server.link())
    cell(page, "L1H2").click()
    settle(page)
    expect(page.get_by_role("heading", name="L1H2 at n = 400")).to_be_visible()

    figure = page.locator(".st-key-figure-kernel")
    figure.hover()
    with page.expect_download() as made:
        figure.locator("[data-title^=Download]").first.click()

    assert made.value.suggested_filename.endswith(".svg")
    assert "L1H2" == parameter(page, "cell")
    assert [] == page.evaluate("violations")


def test_a_strange_script_is_refused(page, server):
    """The policy is in force: a script that somebody writes into the page does not run."""
    page.add_init_script(NOTE)
    visit(page, server.link())

    page.evaluate(
        """() => { const strange = document.createElement("script");
        strange.textContent = "window.strange = true"; document.body.append(strange); }"""
    )

    assert page.evaluate("window.strange") is None
    assert ["script-src-elem inline"] == page.evaluate("violations")
