"""The content security policy in a browser, at work and in force; for every page: test_pages."""

import pytest
from playwright.sync_api import expect

from tests.pages.test_pages import NOTE
from tests.support.visit import cell, go, head_shown, parameter, settle, visit

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_our_scripts_run_and_a_strange_one_is_refused(page, server):
    page.add_init_script(NOTE)
    visit(page, server.link())
    cell(page, "L1H2").click()
    settle(page)
    expect(head_shown(page)).to_have_text("L1H2 at n = 400")

    for format in ("PNG", "SVG"):
        with page.expect_download() as made:
            page.locator(".curve").get_by_role("button", name=format).click()

    assert made.value.suggested_filename.endswith(".svg")
    go(page, "Previous token")
    figure = page.locator(".st-key-figure-scores")
    figure.hover()
    with page.expect_download() as made:
        figure.locator("[data-title^=Download]").first.click()
    assert made.value.suggested_filename.endswith(".svg")
    assert "L1H2" == parameter(page, "head")
    assert [] == page.evaluate("violations")
    page.evaluate(
        """() => { const strange = document.createElement("script");
        strange.textContent = "window.strange = true"; document.body.append(strange); }"""
    )

    assert page.evaluate("window.strange") is None
    assert ["script-src-elem inline"] == page.evaluate("violations")
