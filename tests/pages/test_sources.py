"""The sources of queries in a browser: sampled windows, one text, one token; and no network."""

import pytest
from playwright.sync_api import expect

from tests.support.visit import (
    choose,
    no_trouble,
    redraws,
    settle,
    side_cell,
    title_of,
    visit,
)

pytestmark = pytest.mark.browser

PAGE = "/positional_kernels"


def figures(page):
    return page.locator(".js-plotly-plot").count()


def test_windows_a_chapter_a_text_a_token(page, server):
    visit(page, server.link(PAGE, head="L2H1", query=63))
    expect(page.locator(".js-plotly-plot")).to_have_count(12)
    links = page.locator(".st-key-contents a")
    expect(links).to_have_count(9)
    for link in links.all():
        expect(page.locator(link.get_attribute("href"))).to_be_attached()
    another_head(page)
    no_trouble(page)
    one_chapter(page)
    a_text_of_the_readers_own(page)
    one_token(page)
    a_hub_model_without_network(page)


def another_head(page):
    with redraws(page, "shares"), redraws(page, "similarity"):
        side_cell(page, "L1H3").click()
    expect(title_of(page, "similarity")).to_have_text("Content similarity across positions, L1H3")
    expect(title_of(page, "shares")).to_contain_text("layer 1")


def one_chapter(page):
    page.get_by_role("radio", name="one text").check(force=True)
    choose(page, "Text", "Exodus 12")
    settle(page)
    expect(page.locator(".js-plotly-plot")).to_have_count(12)
    no_trouble(page)


def a_text_of_the_readers_own(page):
    choose(page, "Text", "my own text")
    expect(page.get_by_test_id("stAlert").filter(has_text="Type or paste a text")).to_be_visible()
    box = page.get_by_role("textbox", name="Your text")
    box.fill("Far too short.")
    box.press("Control+Enter")
    settle(page)
    alert = page.get_by_test_id("stAlert").filter(has_text="No query")
    expect(alert).not_to_contain_text("Type or paste")
    expect(alert).to_contain_text("No query at position 63")
    assert 0 == figures(page)
    box.fill("The king went up to the city, and the people of the city saw the king. " * 8)
    box.press("Control+Enter")
    settle(page)
    expect(page.locator(".js-plotly-plot")).to_have_count(12)
    no_trouble(page)


def one_token(page):
    page.get_by_role("radio", name="one token").check(force=True)
    settle(page)
    box = page.get_by_role("textbox", name="Token")
    assert " the" == box.input_value()
    expect(page.get_by_text("for the map over all positions")).to_be_visible()
    no_trouble(page)
    box.fill("xylophone quark")
    box.press("Enter")
    expect(
        page.get_by_test_id("stAlert").filter(has_text="Expected text that is one token")
    ).to_be_visible()
    settle(page)
    expect(page.get_by_test_id("stAlert")).to_have_count(1)
    assert "Traceback" not in page.inner_text("body")


def a_hub_model_without_network(page):
    choose(page, "Model", "gpt2")
    expect(
        page.get_by_test_id("stAlert").filter(has_text="The model hub cannot be reached")
    ).to_be_visible()
    settle(page)
    expect(page.get_by_test_id("stAlert")).to_have_count(1)
    expect(page.get_by_role("textbox", name="Revision")).to_be_visible()
