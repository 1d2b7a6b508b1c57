"""The page of a reader's own text: every control in a browser, links, and strangers' text."""

import re
from functools import partial

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from pages.own_text.page import EXAMPLES, PARAMETER
from pages.shared.choices.links import PAGE_KEYS
from pages.shared.jobs import results
from poskernel_core.analyses.own_text.spec import OwnText, OwnTextParams
from poskernel_core.common.heads import head_name
from poskernel_core.storage.typed import is_name, keep_text
from tests.pages.test_script import FILES
from tests.support.bound import (
    bound,
    chosen,
    fine,
    headings,
    named,
    opened,
    opened_as_linked,
    words,
)
from tests.support.visit import (
    complains,
    hash_of,
    in_both_themes,
    no_trouble,
    parameter,
    pick,
    press,
    redraws,
    title_of,
    unfold_run,
    until,
    values,
    visit,
    write,
)
from tools.recorded import figures_on, open_page

TYPED = "one two three one two three one"
PAGE, FIELD_NAME, TOKEN = "/own_text", "Your text", "Query token (position)"
LIST = EXAMPLES["A list that repeats"]
PAINTED = """name => {
  for (const place of document.querySelectorAll("[data-testid=stBidiComponentIsolated]")) {
    const canvas = place.shadowRoot?.querySelector(name);
    if (!canvas?.width) continue;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let sum = 0;
    for (let at = 3; at < data.length; at += 4) sum = (31 * sum + data[at]) % 1e9;
    return sum;
  }
  return 0;
}"""


@pytest.fixture
def show(page: Page, server):
    def go(text: str = LIST, **parameters: object) -> Page:
        visit(page, server.link(PAGE, **{"text": text, "head": "L2H6", **parameters}))
        return page

    return go


def word(page: Page, at: int) -> Locator:
    return page.locator(f"[role=option][data-at='{at}']")


def small(page: Page, name: str) -> Locator:
    return page.locator(f".patterns [data-name={name}]")


def shade(page: Page, at: int) -> float:
    """How much a token is shaded, 0 to 1."""
    colour = word(page, at).evaluate("node => node.style.background")
    found = re.search(r"([\d.]+)\)", colour)
    return float(found[1]) if found else 0.0


@pytest.mark.browser
def test_every_token_of_a_list(show):
    page = show(at=20)
    nothing_is_cut_off(page)
    expect(page.locator(".told")).to_contain_text("20 ")
    a_token_becomes_the_query(page)
    tokens_under_the_pointer_and_the_keys(page)
    lines_between_tokens(page)
    all_heads_and_the_chosen_one(page)
    strangers_text(page)


def all_heads_and_the_chosen_one(page: Page) -> None:
    expect(page.locator(".patterns [role=gridcell]")).to_have_count(32)
    expect(small(page, "L2H6")).to_have_attribute("aria-selected", "true")
    assert until(page, PAINTED, ".patterns canvas")
    with redraws(page, "row"):
        small(page, "L3H5").click()
    assert "L3H5" == values(page)["Head"]
    expect(title_of(page, "tokens")).to_have_text("L3H5 on the text")
    expect(page.locator(".patterns .tip")).to_contain_text("score variance explained by position")
    small(page, "L3H5").press("ArrowLeft")
    expect(small(page, "L3H4")).to_be_focused()
    with redraws(page, "row"):
        small(page, "L3H4").press("Enter")
    assert "L3H4" == parameter(page, "head")
    small(page, "L3H4").press("Control+Home")
    expect(small(page, "L0H0")).to_be_focused()


def tokens_under_the_pointer_and_the_keys(page: Page) -> None:
    """A previous-token head shades the token before; incoming, the one after; both by keyboard."""
    told = page.locator(".told")
    word(page, 9).hover()
    expect(told).to_contain_text("9 ")
    expect(told).to_contain_text("attends most to 8 ")
    assert shade(page, 8) > 0.5 > shade(page, 10) == 0.0
    word(page, 20).focus()
    page.keyboard.press("ArrowLeft")
    expect(word(page, 19)).to_be_focused()
    expect(told).to_contain_text("19 ")
    page.keyboard.press("Home")
    expect(word(page, 0)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(word(page, 0)).not_to_be_focused()
    page.keyboard.press("End")
    expect(word(page, 23)).to_be_focused()
    pick(page, "incoming")
    assert "incoming" == parameter(page, "direction")
    word(page, 9).hover()
    expect(told).to_contain_text("gets most attention from 10 ")
    assert shade(page, 10) > 0.5 > shade(page, 8) == 0.0


def lines_between_tokens(page: Page) -> None:
    """A query's line leads to the token before it; the choice stays when the server redraws."""
    page.get_by_role("button", name="Lines").click()
    query, key = (page.locator(f".column:{side}-child [data-at='9']") for side in ("first", "last"))
    pick(page, "outgoing")
    query.hover()
    expect(page.locator(".told")).to_contain_text("attends most to 8 ")
    assert until(page, PAINTED, ".attention .bundle")
    key.hover()
    expect(page.locator(".told")).to_contain_text("gets most attention from 10 ")
    with redraws(page, "row"):
        query.click()
    assert "9" == parameter(page, "at")
    expect(key).to_be_visible()
    page.get_by_role("button", name="Text", exact=True).click()


def a_token_becomes_the_query(page: Page) -> None:
    with redraws(page, "row"):
        word(page, 12).click()
    assert "12" == parameter(page, "at")
    expect(title_of(page, "row")).to_contain_text("L2H6, query 12")
    expect(word(page, 12)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowRight")
    with redraws(page, "row"):
        page.keyboard.press("Enter")
    assert "13" == parameter(page, "at")
    with redraws(page, "row"):
        write(page, TOKEN, "20")
    expect(word(page, 20)).to_have_attribute("aria-selected", "true")
    page.locator(".attention .lines").scroll_into_view_if_needed()
    box = page.locator(".attention .lines").bounding_box()
    assert box is not None
    with redraws(page, "row"):
        page.mouse.click(box["x"] + 3, box["y"] + box["height"] * 5.5 / 24)
    assert "5" == parameter(page, "at")
    expect(page.get_by_test_id("stMetricValue")).to_have_count(5)
    before = hash_of(page, "row")
    unfold_run(page)
    press(page, "Skip first keys (tokens)", "Home")
    assert before != hash_of(page, "row")


def strangers_text(page: Page) -> None:
    write(page, FIELD_NAME, "<img src=x onerror=alert(1)> **bold** \u202eevil\u202c \x07 end")
    expect(page.locator(".words")).to_contain_text("onerror")
    expect(page.locator(".words img")).to_have_count(0)
    assert "\\u0007" in page.locator(".words").inner_text()
    assert "\u202e" not in page.locator(".words").inner_text()
    expect(title_of(page, "row")).to_be_visible()
    no_trouble(page)
    write(page, FIELD_NAME, "word " * 600)
    complains(page, "the context holds 512: shorten it by about")


def nothing_is_cut_off(page: Page) -> None:
    for width in (390, 1024, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        for _ in in_both_themes(page):
            assert until(page, PAINTED, ".patterns canvas")
            assert until(page, PAINTED, ".attention .map")
            assert page.evaluate(
                "document.querySelector('[data-testid=stMain]').scrollWidth <= innerWidth"
            )
            box = page.locator(".words").bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= width


@pytest.fixture
def script(fresh_engine, monkeypatch):
    """Run the page as a script, on a store that holds no results and computes none."""
    monkeypatch.setattr(results, "engine", lambda: fresh_engine)
    monkeypatch.setattr("pages.own_text.page.engine", lambda: fresh_engine)
    monkeypatch.setattr("pages.own_text.page.results.fetch", lambda *_: None)

    return partial(opened_as_linked, "own_text")


def test_a_link_whose_text_is_gone(script):
    app = script(text="0" * 32)

    assert "does not have the text of the link" in app.warning[0].value
    assert "0" * 32 == app.query_params["text"]
    assert not app.info
    assert not app.exception


def test_a_link_with_a_name_and_one_with_a_text(script, fresh_engine):
    """A text goes by its name, whether it was typed, taken from the examples, or linked."""
    app = script(model="demo-gpt2")
    assert "Type or paste a text, or take an example" in app.info[0].value
    for text in (TYPED, EXAMPLES["A program"], LIST):
        name = keep_text(fresh_engine.store, text)
        assert re.fullmatch("[0-9a-f]{32}", name)
        if text in EXAMPLES.values():
            next(each for each in app.button if EXAMPLES.get(each.label) == text).click().run()
        else:
            bound(app)[PARAMETER].set_value(text).run()
        linked = script(text=name), script(text=text)
        assert {text} == {bound(each)[PARAMETER].value for each in (app, *linked)}
        assert {name} == {"".join(each.query_params["text"]) for each in (app, *linked)}
        for each in (app, *linked):
            assert any("hash alone: it opens on this server" in said.value for said in each.caption)
    open_page(app, "contextual")
    assert LIST == bound(open_page(app, "own_text"))[PARAMETER].value


def test_a_text_stays_on_its_page(script):
    """Another page's typed text is another: its address would hold the name, and not the text."""
    app = script(model="demo-gpt2", text=TYPED)
    assert re.fullmatch("[0-9a-f]{32}", "".join(app.query_params["text"]))
    open_page(app, "positional_kernels")
    bound(app)["source"].set_value("one text").run()
    bound(app)["item"].set_value("my own text").run()
    assert "text" not in app.query_params
    bound(app)["typed"].set_value("b c d").run()
    assert "b c d" == "".join(app.query_params["typed"])
    assert TYPED == bound(open_page(app, "own_text"))[PARAMETER].value


def test_an_old_link_with_a_text_of_another_page(script):
    """On every page whose texts may be typed; on this one the name has stayed."""
    own = {"source": "one text", "item": "my own text", "text": "b c d"}
    app = opened_as_linked("positional_kernels", model="demo-gpt2", **own)
    assert ("b c d", False) == (chosen(app, "typed"), bool(app.warning))
    typed = re.compile(r"selection\.source import choose_(source|text)\b")
    pages = {each.parent.name for each in FILES if typed.search(each.read_text("utf-8"))}
    assert pages == {name for name, keys in PAGE_KEYS.items() if "text" in keys}
    assert PARAMETER == "text"


def test_examples_of_a_model_without_weights(shipped_only):
    """It opens with one: every head's pattern, and one head's split. No other is offered."""
    app = opened("own_text", model="smollm2-135m-instruct-q4")
    assert ["row"] == figures_on(app)
    assert ["A list that repeats"] == [each.label for each in app.button if each.label in EXAMPLES]
    left_out = [each.value for each in app.caption if each.value.startswith("Not computed")]
    assert ["Not computed: what makes the token's scores.",
            "Not computed: what the head writes."] == left_out  # fmt: skip
    assert bound(app).keys().isdisjoint({"split", "writes"})
    app = opened("own_text", model="smollm2-135m-instruct-q4", head="L18H6")
    assert next(iter(EXAMPLES.values())) == bound(app)[PARAMETER].value
    assert [] == figures_on(app)
    assert "of 270 heads the share" in words(app)
    assert any("takes the model's weights" in each.value for each in app.caption)
    bound(app)[PARAMETER].set_value("a text of mine").run()
    assert "all heads on the text. This server shows" in app.info[0].value
    assert not app.exception


@pytest.mark.slow
def test_which_heads_attend_from_one_token_to_another(shipped_only):
    """Also without weights: the ten of the stored example, the largest first."""
    app = fine(opened_as_linked("own_text", at="16", to="10"))
    (table,) = (each.value for each in app.dataframe if "share of attention" in each.value)
    shares = table["share of attention"].tolist()
    assert len(shares) == 10
    assert sorted(shares, reverse=True) == shares
    whole = results.stored(results.plan(OwnText, app.session_state["selection"].run,
                                        OwnTextParams(text=chosen(app, PARAMETER))))  # fmt: skip
    pattern = whole.values["pattern"][:, :, 16, 10]
    assert shares[0] == pytest.approx(np.nanmax(pattern))
    assert named(table["head"].iloc[0]) == head_name(
        *map(int, np.argwhere(pattern == np.nanmax(pattern))[0])
    )
    assert any(each.startswith("Which heads attend from 16") for each in headings(app))


def test_a_text_of_keys_that_are_skipped(computed):
    asked = {"text": "hello", "windows": "20", "context": "128"}
    app = opened("own_text", **asked)
    assert any("No key is left for the token at position" in each.value for each in app.info)
    assert "row" not in figures_on(app)
    assert "row" in figures_on(opened("own_text", skip="0", **asked))


def test_a_host_that_forbids_keeping(script, fresh_engine, monkeypatch):
    monkeypatch.setenv("POSKERNEL_KEEP_TEXTS", "0")
    app = script()
    bound(app)[PARAMETER].set_value("a b c").run()

    assert "a b c" == app.query_params["text"]
    assert [] == [*fresh_engine.store.keys("typed-")]
    bound(app)[PARAMETER].set_value("a " * 5000).run()
    name = app.query_params["text"]
    assert is_name(name)
    assert any("too long for a link" in each.value for each in app.caption)

    app.query_params |= {"text": "d e"}  # as Back, and then Forward
    assert "d e" == bound(app.run())[PARAMETER].value
    app.query_params |= {"text": name}
    assert "a " * 5000 == bound(app.run())[PARAMETER].value
    assert [] == [*fresh_engine.store.keys("typed-")]


def test_too_many_characters(script):
    app = script()
    bound(app)[PARAMETER].set_value("a" * 100_001).run()

    assert "at most 100,000 characters, got 100,001" in app.error[0].value.replace("\\", "")
    assert not app.exception
