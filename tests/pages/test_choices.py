"""What the reader has chosen: the address, widgets, and words of the browser that come late."""

import asyncio
import dataclasses
import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext
from streamlit.testing.v1 import AppTest

from pages.shared.choices import choices, fit
from tests.support.bound import bound, chosen
from tests.support.quick_choices import run
from tests.support.visit import side_cell, visit

SEED, SEQUENCES = 59, 18


def page() -> None:
    """A page with a widget of every kind; what is offered follows ``most``."""
    import streamlit as st

    from pages.shared.choices import fit
    from pages.shared.choices.choices import choose, open_choices, open_page, write_address

    open_choices("page")
    most = st.sidebar.number_input("most", **fit.fitted_number("most", (3, 50), 20))
    open_page()
    large = most > 40
    st.slider("whole", **fit.fitted("whole", range(2, most + 1), min(7, most)))
    st.select_slider("step", **fit.fitted("step", [1, 3, 10, 30, *[45] * large], 3))
    st.select_slider("wide", **fit.fitted("wide", [1, 3, 10, 30], 3, (1, 99)))
    st.slider("far", **fit.fitted_number("far", (0, 500), 20, (10, 45 if large else 40)))
    st.number_input("share", **fit.fitted_number("share", (0.0, 2.5), 0.5))
    st.selectbox("word", **fit.fitted_index("word", ["a", "b", "c d", *"m" * large]))
    st.multiselect("many", **fit.fitted_list("many", ["x", "y", "z", *"m" * large], ["x"]))
    st.toggle("flag", **fit.fitted_flag("flag", True))
    st.text_input("text", **fit.fitted_text("text", "usual", 11))
    st.slider("span", **fit.fitted_span("span", 0, most))
    fit.choose_one("way", ["in", "out"], "way", default="out")
    st.button("set", key="set", on_click=choose, args=("whole", 5))
    st.session_state["told"] = [each.key for each in write_address(alone=False)]


DEFAULTS = {
    "most": 20, "whole": 7, "step": 3, "wide": 3, "far": 20, "share": 0.5, "word": "a",
    "many": ["x"], "flag": True, "text": "usual", "span": (0, 20), "way": "out",
}  # fmt: skip


def opened(**link: object) -> AppTest:
    app = AppTest.from_function(page)
    for key, value in link.items():
        app.query_params[key] = value
    return fine(app.run())


def fine(app: AppTest) -> AppTest:
    assert not app.exception
    shown = {key: widget.value for key, widget in bound(app).items()}
    assert shown == {key: chosen(app, key) for key in DEFAULTS}
    return app


def held(app: AppTest) -> dict[str, object]:
    return {key: chosen(app, key) for key in DEFAULTS}


def address(app: AppTest) -> dict[str, list[str]]:
    given = {key: app.query_params[key] for key in app.query_params}
    return {key: [texts] if isinstance(texts, str) else [*texts] for key, texts in given.items()}


LINKS = st.fixed_dictionaries({}, optional={
    "most": st.integers(3, 50),
    "whole": st.integers(-3, 60) | st.floats(-1, 60) | st.sampled_from(["nan", "inf", "", "x"]),
    "step": st.integers(-3, 60), "wide": st.integers(-3, 120), "far": st.integers(-9, 600),
    "share": st.floats(-1, 4),
    "word": st.sampled_from(["a", "b", "c d", "e", ""]),
    "many": st.lists(st.sampled_from(["x", "y", "z", "w", ""]), max_size=4),
    "flag": st.sampled_from(["true", "False", "1", ""]),
    "text": st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=17),
    "span": st.lists(st.integers(-2, 55), min_size=2, max_size=2),
    "way": st.sampled_from(["in", "up"]),
})  # fmt: skip


@given(LINKS)
def test_what_a_link_shows_its_own_address_shows_again(link):
    """Whatever it asks for; what does not fit is told, the rest is not."""
    app = opened(**{key: v if isinstance(v, list) else str(v) for key, v in link.items()})
    again = opened(**address(app))
    assert (held(app), address(app)) == (held(again), address(again))
    assert [] == again.session_state["told"]
    assert {*app.session_state["told"]} <= link.keys()
    most = chosen(app, "most")
    usual = DEFAULTS | {"whole": min(7, most), "span": (0, most)}
    for key, value in held(app).items():
        assert (key in address(app)) == (value != usual[key])


def test_the_nearest_is_taken_where_values_are_ordered():
    app = opened(whole="99", step="22", share="-1", word="q", many=["z", "w", "x"], flag="maybe",
                 text="a much longer text", span=["-5", "9"], way="up", most="4000",
                 far="33.6")  # fmt: skip
    expected = {
        "most": 50, "whole": 50, "step": 30, "share": 0.0, "word": "a", "many": ["z", "x"],
        "flag": True, "text": "a much long", "span": (0, 9), "way": "out", "far": 34,
    }  # fmt: skip
    assert DEFAULTS | expected == held(app)
    assert {*expected} == {*app.session_state["told"]}
    assert (9, False) == tuple(
        held(opened(whole="8.6", flag="FALSE"))[k] for k in ("whole", "flag")
    )


def test_what_the_bounds_allow_is_offered_where_it_is_asked_for():
    """Between the steps of a slider, and beyond its usual ends; no further."""
    app = opened(wide="22", far="300")
    assert (22, 300) == (chosen(app, "wide"), chosen(app, "far"))
    assert ["1", "3", "10", "22", "30"] == bound(app)["wide"].options
    assert (10, 300) == (bound(app)["far"].min, bound(app)["far"].max)
    assert [] == app.session_state["told"]
    assert (99, 500) == tuple(held(opened(wide="99", far="500"))[k] for k in ("wide", "far"))
    app = opened(wide="100", far="501")
    assert (30, 40) == (chosen(app, "wide"), chosen(app, "far"))
    assert ["wide", "far"] == app.session_state["told"]


def test_a_choice_that_no_longer_fits_moves_and_its_widget_is_another():
    app = opened(whole="40", most="50")
    assert "whole" == bound(app)["whole"].key
    fine(bound(app)["most"].set_value(30).run())
    assert (30, ["30"], "whole~1") == (
        chosen(app, "whole"), address(app)["whole"], bound(app)["whole"].key,
    )  # fmt: skip
    assert [] == app.session_state["told"]


def test_what_the_server_sets_is_shown_by_another_widget():
    app = opened()
    fine(bound(app)["whole"].set_value(9).run())
    assert "whole" == bound(app)["whole"].key
    fine(app.button(key="set").click().run())
    assert (5, "whole~1") == (bound(app)["whole"].value, bound(app)["whole"].key)


def test_a_former_widget_that_says_its_default_has_chosen_nothing(monkeypatch):
    """A browser tells what it has just drawn, and that may be gone by then; a new word counts."""
    state: dict[str, object] = {}
    monkeypatch.setattr(choices.st, "session_state", state)

    def drawn(default: int) -> dict[str, object]:
        return choices.widget("T", fitted_to(default), [default])

    def fitted_to(default: int) -> int:
        return choices.fit("T", default, lambda texts: int(texts[-1]))

    drawn(512)
    former = drawn(128)
    latest = drawn(512)
    assert ["T~1", "T~2"] == [former["key"], latest["key"]]

    state["T~1"] = 128
    former["on_change"]()
    assert (512, {}) == (choices.chosen("T"), choices.address())
    state["T~1"] = 64
    former["on_change"]()
    assert {"T": ["64"]} == choices.address()
    state["T~2"] = 512
    latest["on_change"]()
    assert {} == choices.address()


@pytest.fixture
def session(monkeypatch):
    """What a session keeps, and its address, without a script; ``written`` counts."""

    class Address(dict[str, list[str]]):
        written = 0

        def get_all(self, key: str) -> list[str]:
            return self[key]

        def from_dict(self, texts: dict[str, list[str]]) -> None:
            self.written += 1
            self.clear()
            self.update(texts)

    made = SimpleNamespace(session_state={}, query_params=Address())
    monkeypatch.setattr(choices, "st", made)
    return made


def whole(texts: tuple[str, ...]) -> int:
    return int(texts[-1])


def test_the_reader_s_change_is_chosen_before_what_follows_it(session):
    seen: list[object] = []

    def then() -> None:
        seen.append(choices.chosen("T"))

    choices.fit("T", "a", str)
    for number, drawn in enumerate((
        choices.widget("T", "a", then=then),
        fit.fitted_index("T", ["a", "b0", "b1", "b2"], then=then),
        fit.fitted_text("T", "a", then=then),
    )):  # fmt: skip
        session.session_state[drawn["key"]] = f"b{number}"
        drawn["on_change"]()
    assert ["b0", "b1", "b2"] == seen


def test_what_is_lent_is_shown_until_something_is_chosen(session):
    assert 1 == fit.fitted_index("T", ["a", "b", "c"], lent="b")["index"]
    choices.choose("T", "c")
    assert 2 == fit.fitted_index("T", ["a", "b", "c"], lent="b")["index"]


def test_a_number_that_a_model_lacks_is_told(session):
    choices.open_choices("page")
    session.session_state[choices.KEPT].choices = choices.Choices({"T": 17})
    assert 20 == fit.nearest_of("T", [10, 20, 30], 10, "m")
    assert [choices.Told("T", "17", 20, model="m")] == choices.write_address(alone=False)


def test_the_address_has_what_stands_for_a_value(session):
    """As long as that is the value; none at all where nothing stands for it."""
    choices.fit("T", "", str)
    for texts, value, written in (
        (["short"], "a long text", {"T": ["short"]}),
        (["short"], "another", {"T": ["another"]}),
        ([], "a long text", {}),
    ):
        choices.spell("T", "a long text", texts)
        choices.choose("T", value)
        assert written == choices.address()


def test_only_a_choice_of_the_reader_s_is_what_a_model_lacks(session):
    """A link asks for what is not offered; of Back nothing is told."""
    for made, told in (
        (choices.Choices({"T": 9}), [choices.Told("T", "9", 5, model="m")]),
        (choices.Choices({"T": 4}), []),
        (choices.Choices(asked={"T": ("9",)}), []),
        (choices.Choices(asked={"T": ("9",)}, linked=True), [choices.Told("T", "9", 5, "to 5")]),
    ):
        session.session_state.clear()
        choices.open_choices("page")
        session.session_state[choices.KEPT].choices = made
        choices.fit("T", 1, whole, partial(min, 5), lambda: "to 5", "m")
        assert told == choices.write_address(alone=False)


def test_after_back_the_address_is_written_though_it_is_the_same(session):
    """A run that was under way may have written its own by then."""

    def run(**given: str) -> int:
        session.query_params.update({key: [text] for key, text in given.items()})
        choices.open_choices("page")
        choices.fit("T", 7, whole)
        choices.write_address(alone=False)
        return session.query_params.written

    assert [0, 0, 1, 1] == [run(T="9"), run(T="9"), run(T="8"), run(T="8")]


def test_a_choice_that_is_taken_back_before_its_address_arrives(session):
    """The browser repeats its former address, and then shows that of the choice in between."""

    def run(value: int) -> int:
        session.query_params.update(T=["9"])
        choices.open_choices("page")
        if value != choices.fit("T", 7, whole):
            choices.choose("T", value)
        choices.write_address(alone=False)
        return session.query_params.written

    assert [0, 1, 2, 2] == [run(9), run(8), run(9), run(9)]
    assert {"T": ["9"]} == session.query_params


def test_back_takes_all_fields_from_the_address():
    app = opened(whole="9", word="b")
    fine(bound(app)["share"].set_value(2.0).run())
    assert {"whole": ["9"], "word": ["b"], "share": ["2"]} == address(app)
    app.query_params.clear()
    app.query_params |= {"whole": "4"}
    fine(app.run())
    assert held(app) == DEFAULTS | {"whole": 4}
    assert [] == app.session_state["told"]


def test_a_late_address_is_no_choice(monkeypatch):
    """The browser repeats one that was written before; what was chosen since stays."""
    app = opened(whole="9")
    for value in (10, 11):
        fine(bound(app)["whole"].set_value(value).run())
    app.query_params["whole"] = "10"
    fine(app.run())
    assert (11, ["11"]) == (chosen(app, "whole"), address(app)["whole"])


def test_an_address_that_the_browser_has_left_is_a_choice():
    """It has said a later one since: the earlier one comes from Back, or is typed."""
    app = opened(whole="9")
    fine(bound(app)["whole"].set_value(10).run())
    fine(app.run())
    app.query_params["whole"] = "9"
    fine(app.run())
    assert (9, ["9"]) == (chosen(app, "whole"), address(app)["whole"])


def test_what_is_told_is_told_until_the_reader_chooses():
    app = opened(whole="999")
    assert ["whole"] == app.session_state["told"]
    fine(bound(app)["whole"].set_value(5).run())
    assert [] == app.session_state["told"]


def test_a_value_is_asked_for_no_more_once_it_is_chosen():
    asked = {"whole": ("9",), "share": ("2",)}
    made = choices.Choices(asked=asked).with_value("whole", 5, 7)
    assert ({"whole": 5}, {"share": ("2",)}) == (made.values, made.asked)


def pages() -> None:
    """Pages ``where`` a field has their name, beside one field; it may wait, or be drawn alone."""
    import streamlit as st

    from pages.shared.choices import choices, fit

    asked, name = st.session_state, st.session_state.get("where", "page")
    choices.open_choices(name)
    st.sidebar.number_input("most", **fit.fitted_number("most", (3, 50), 20))
    choices.open_page()
    if asked.get("waits"):
        choices.waits()
    else:
        st.slider(name, **fit.fitted(name, range(2, 8), 7))
    notices = choices.write_address(alone=asked.get("alone", False))
    st.session_state["told"] = [each.key for each in notices]


def test_what_is_told_of_a_page_is_not_told_of_the_next():
    app = AppTest.from_function(pages)
    app.query_params["page"] = "99"
    assert ["page"] == app.run().session_state["told"]
    app.session_state["where"] = "another"
    assert [] == app.run().session_state["told"]


def test_what_a_page_does_not_use_is_told_once_and_left_out():
    app = opened(whole="9", nothing="1")
    for value in (9, 8):
        fine(bound(app)["whole"].set_value(value).run())
        assert ["nothing"] == app.session_state["told"]
        assert {"whole": [str(value)]} == address(app)


@pytest.mark.parametrize("late", ["waits", "alone"])
def test_what_a_page_does_not_draw_yet_is_kept(late):
    """A part of it is missing, or one card is drawn alone: the rest may come."""
    app = AppTest.from_function(pages)
    app.session_state[late] = True
    app.query_params |= {"page": "5", "nothing": "1"}
    for _ in range(2):
        assert [] == app.run().session_state["told"]
        assert {"page": ["5"], "nothing": ["1"]} == address(app)
    app.session_state[late] = False
    assert ["nothing"] == app.run().session_state["told"]
    assert (5, {"page": ["5"]}) == (chosen(app, "page"), address(app))


def test_back_to_a_page_takes_what_all_pages_share_too():
    """Also of one that this session has not drawn; what only others have stays."""
    app = AppTest.from_function(pages).run()
    for key in ("most", "page"):
        bound(app)[key].set_value(5).run()
    app.session_state["where"] = "another"
    app.query_params.clear()
    app.query_params["another"] = "4"
    app.run()
    assert (20, 5, 4) == tuple(chosen(app, key) for key in ("most", "page", "another"))


def test_back_is_a_choice_also_of_an_address_just_written(monkeypatch):
    """Streamlit says so; without it, the same word of the browser is a late one."""
    app = opened(whole="9")
    for value in (10, 11):
        fine(bound(app)["whole"].set_value(value).run())
    context = SimpleNamespace(is_history_navigation=True)
    monkeypatch.setattr(choices, "get_script_run_ctx", lambda: context)
    app.query_params["whole"] = "10"
    fine(app.run())
    assert 10 == chosen(app, "whole")
    app.query_params.clear()
    fine(app.run())
    assert (7, {}) == (chosen(app, "whole"), address(app))


def test_a_widget_is_another_one_where_other_values_are_offered():
    """Streamlit takes the ends of a slider for a part of what it is, beside its key."""
    app = opened()
    fine(bound(app)["most"].set_value(45).run())
    other = {key for key, widget in bound(app).items() if widget.key == f"{key}~1"}
    assert {"whole", "step", "far", "word", "many", "span"} == other


def test_streamlit_still_says_that_the_reader_went_back():
    assert "is_history_navigation" in {each.name for each in dataclasses.fields(ScriptRunContext)}


@pytest.mark.browser
def test_a_choice_is_told_where_drawing_fails(page, still, shipped_only):
    """The server follows a click that the browser could not draw."""
    visit(page, f"{still.url}/methods?model=demo-gpt2&head=L0H1")
    page.evaluate(
        """() => {
          document.documentElement.toggleAttribute = () => { throw new Error("not drawn"); };
        }"""
    )
    side_cell(page, "L1H2").dispatch_event("click")
    page.evaluate("() => { delete document.documentElement.toggleAttribute; }")
    expect(page).to_have_title(re.compile("L1H2"))


@pytest.mark.browser
def test_the_tab_keeps_its_title_until_it_has_another(page, still, shipped_only):
    visit(page, f"{still.url}/methods?model=demo-gpt2&head=L0H1")
    page.evaluate(
        """() => {
          window.titles = [document.title];
          new MutationObserver(() => {
            if (document.title !== titles.at(-1)) titles.push(document.title);
          }).observe(document.head, { childList: true, subtree: true, characterData: true });
        }"""
    )
    side_cell(page, "L1H2").click()
    expect(page).to_have_title(re.compile("L1H2"))
    heads = [re.search(r"L\dH\d|$", title)[0] for title in page.evaluate("titles")]
    assert ["L0H1", "L1H2"] == heads


@pytest.mark.browser
@pytest.mark.slow
def test_quick_choices_are_all_kept(still, shipped_only):
    """On every page: what was chosen last is shown, in the address, and there again."""
    seed = int(os.environ.get("POSKERNEL_SEED", SEED))
    with ThreadPoolExecutor() as apart:  # where no other browser's loop runs
        assert [] == apart.submit(asyncio.run, run(still.url, SEQUENCES, seed)).result()
