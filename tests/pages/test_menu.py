"""The menu of a card: drawn by the server while it is open, closed at once by the browser."""

import re
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import expect

from pages.shared.cards.card import DECIDING
from poskernel_core.analyses.how_many_texts.spec import NOT_BY_GROUPS
from tests.support.bound import choose, fine, heads_of_cards, opened, with_menu, words
from tests.support.visit import go, menu_of, settle, title_of, tool, visit


@pytest.mark.browser
def test_a_menu_is_opened_and_closed(page, still):
    """By its button, a key or a press beside it, however quickly; one is open at a time."""
    visit(page, f"{still.url}/?model=demo-gpt2")
    menu, body = menu_of(page, "etc"), page.locator("[class*=st-key-menu-]")
    for close in (menu.click, lambda: page.keyboard.press("Escape"), title_of(page, "etc").click):
        menu.click()
        expect(body.get_by_role("tab", name="Formula", exact=True)).to_be_visible()
        expect(menu).to_have_attribute("aria-expanded", "true")
        close()
        expect(body).to_be_hidden()
        settle(page)
        expect(body).to_have_count(0)
    for _ in range(3):
        menu.click()
        menu.click()
    menu.click()
    settle(page)
    expect(body).to_be_visible()
    menu_of(page, "kernel").click()
    settle(page)
    expect(page.locator(".st-key-menu-etc")).to_be_hidden()
    expect(page.locator(".st-key-menu-kernel")).to_be_visible()
    go(page, "Helix")
    expect(body).to_have_count(0)
    with tool(page, "helix", "Formula") as told:
        expect(told.locator(".katex").first).to_be_visible()


def test_a_menu_stays_open_while_the_selection_is_the_same(shipped_only):
    """While results form, its page is drawn anew; once something else is chosen, it is closed."""
    app = with_menu(opened("etc_heatmap"), "etc")
    assert "Citation" in [each.label for each in fine(app.run()).tabs]
    assert not fine(choose(app, "head", "L0H1")).tabs


SIZES = {"windows": "50", "context": "64", "query": "47"}


def test_a_menu_leads_to_the_texts_that_decide_a_number(computed):
    """Of each measure that the card shows; the link opens what it leads to, and asks for it."""
    app = with_menu(opened("etc_heatmap", measure="attention sink", **SIZES), "etc")
    (line,) = (each for each in words(app).splitlines() if "Which texts decide it" in each)
    links = re.findall(r"\[([^][]*)\]\(etc_heatmap\?([^)]*)#texts-groups\)", line)
    assert ["attention sink"] == [title for title, _ in links]
    link = {key: values[-1] for key, values in parse_qs(links[0][1]).items()}
    asked = {"measure": "attention sink", DECIDING: "true", "head": "L2H6", "query": "47"}
    assert asked.items() <= link.items()
    assert "texts-groups" not in names_of_cards(app)
    app = fine(opened("etc_heatmap", **link))
    assert "texts-groups" in names_of_cards(app)
    (fold,) = (each for each in app.expander if "How many texts" in each.label)
    assert fold.proto.expanded


def names_of_cards(app):
    return {head["name"] for head in heads_of_cards(app)}


def test_nothing_leads_to_texts_whose_sums_are_not_kept_by_groups(shipped):
    """As those of a demo that come with the project: instead of the question stands why."""
    app = with_menu(opened("etc_heatmap"), "etc")
    assert "Which texts decide" not in words(app)
    app = fine(opened("etc_heatmap", **{DECIDING: "true"}))
    assert NOT_BY_GROUPS in [each.value for each in app.caption]
    assert "compute-how-many" not in [each.key for each in app.button]
    app = fine(opened("explore", decides="true"))
    assert not any("one group of texts" in each.label for each in app.toggle)


def test_a_menu_leads_nowhere_if_nothing_is_computed(shipped_only):
    app = with_menu(opened("etc_heatmap"), "etc")
    assert "Citation" in [each.label for each in app.tabs]
    assert "Which texts decide" not in words(app)
