"""The page on contextual heads in a browser: every control, and what it changes."""

import re

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from poskernel_core.plotting.layout import quoted
from tests.pages.test_downloads import arrays, download
from tests.support.visit import (
    complains,
    csv_rows,
    hash_of,
    move,
    no_trouble,
    parameter,
    press,
    redraws,
    seek,
    settle,
    side_cell,
    traces,
    unfold_run,
    values,
    write,
)
from tests.support.visit_tables import click_row, column, drawn, groups, wide

pytestmark = pytest.mark.browser

PAGE, HEADS, NOTHING_LEFT = "/contextual", 32, "no keys are left to average over"
FIGURES = ("plane", "denominators", "variation", "duplicates", "weights", "distances")
TOKEN, OWN, CHAPTERS = "Destination token", "Texts of your own", "Chapters drawn alongside"
ALIKE, APART = "Largest distance within a group", "Distance that rules a pair out"
BROAD = "Effective token count from which a kernel is broad"
STEADY = "Largest coefficient of variation of a steady denominator"
LOCAL, COPIES = "Mass in the last 10 tokens that makes", "Attention to duplicates that makes"


@pytest.fixture
def show(page: Page, server):
    return wide(page, server, PAGE)


def counted(page: Page) -> int:
    """How many heads the page says are contextual."""
    sentence = page.get_by_test_id("stMain").get_by_text(f"of {HEADS} heads are contextual")
    return int(sentence.inner_text().split()[0])


def said(page: Page, what: str) -> Locator:
    return page.get_by_test_id("stMain").get_by_text(re.compile(what))


def test_one_head(show):
    """Also one whose keys are all skipped, until they are not."""
    page = show(head="L2H1", query=15, skip=15)
    expect(page.get_by_test_id("stAlertContentInfo")).to_contain_text(NOTHING_LEFT)
    expect(page.locator(".js-plotly-plot")).to_have_count(0)
    unfold_run(page)
    press(page, "Skip first keys (tokens)", "ArrowLeft")
    drawn(page, FIGURES)
    expect(page.get_by_text(NOTHING_LEFT)).to_have_count(0)
    move(page, "End")
    kernels_of_a_layer(page)
    chapters_and_texts_of_ones_own(page)
    token_and_number_of_texts(page)


def token_and_number_of_texts(page: Page) -> None:
    before = hash_of(page, "plane")
    write(page, TOKEN, " of <b>the</b>")
    complains(page, "Expected text that is one token of 'demo-gpt2'; ' of <b>the</b>' is")
    expect(page.locator(".st-key-card-plane")).to_have_count(0)
    expect(page.locator(".st-key-figure-distances .main-svg").first).to_be_visible()
    write(page, TOKEN, " of")
    drawn(page, FIGURES)
    assert before != hash_of(page, "plane")
    assert " of" == parameter(page, "token")
    with redraws(page, "plane"):
        press(page, "First windows", "ArrowRight")
    assert "16" == parameter(page, "firstwindows")
    write(page, TOKEN, "")
    expect(page.get_by_placeholder(f"empty: {quoted(' the')}")).to_have_value("")
    expect(page.get_by_text(f"contextual for {quoted(' the')} at n =")).to_be_visible()
    no_trouble(page)


def test_groups_and_rows(show):
    page = show(head="L0H1")
    what_is_counted_is_what_is_drawn(page)
    a_row_selects_its_head_again(page)
    a_row_selects_a_head(page)
    thresholds_are_those_of_the_numbers(page)
    no_trouble(page)


def thresholds_are_those_of_the_numbers(page: Page) -> None:
    rows = csv_rows(download(page, "plane", "CSV"))
    file = arrays(page, "plane")
    heads = {name: file[name].ravel() for name in ("etc", "denominator_cv", "local_mass")}
    attention = np.fmax(file["near_duplicates"], file["far_duplicates"]).ravel()
    page.keyboard.press("Escape")
    told = {(int(row["layer"]), int(row["head"])): float(row["etc (tokens)"])
            for row in rows if row["etc (tokens)"]}  # fmt: skip
    assert dict(zip(np.ndindex(4, 8), heads["etc"].tolist(), strict=True)) == told
    in_view = dict(zip(column(page, "contextual-table", "head"),
                       column(page, "contextual-table", "CV"), strict=True))  # fmt: skip
    assert len(in_view) > 9
    for head, spread in in_view.items():
        layer, number = map(int, re.findall(r"\d+", head))
        assert float(spread) == pytest.approx(heads["denominator_cv"][8 * layer + number], rel=1e-6)

    def expected(broad=30.0, steady=0.25, dlocal=0.5, duplicates=0.3) -> dict[str, int]:
        duplicate, near = attention >= duplicates, heads["local_mass"] >= dlocal
        flat = (heads["etc"] >= broad) & (heads["denominator_cv"] <= steady)
        kinds = (duplicate, near & ~duplicate, flat & ~near & ~duplicate,
                 ~(flat | near | duplicate))  # fmt: skip
        names = ("duplicate token", "detokenization", "contextual", "other")
        return {name: int(kind.sum()) for name, kind in zip(names, kinds, strict=True)
                if kind.any()}  # fmt: skip

    assert expected() == groups(page)
    page.get_by_role("button", name="Thresholds").click()
    limits = {}
    for name, key, change in (
        (STEADY, "Home", {"steady": 0}),
        (STEADY, "End", {"steady": 2}),
        (BROAD, "End", {"broad": 128}),
        (BROAD, "Home", {"broad": 1}),
        (LOCAL, "End", {"dlocal": 1}),
        (LOCAL, "Home", {"dlocal": 0}),
        (COPIES, "Home", {"duplicates": 0}),
    ):
        limits |= change
        with redraws(page, "plane"):
            press(page, name, key)
        assert expected(**limits) == groups(page)
        assert counted(page) == groups(page).get("contextual", 0)
    assert limits == {each: float(parameter(page, each)) for each in limits}


def a_row_selects_a_head(page: Page) -> None:
    heads, layer = column(page, "contextual-table", "head"), values(page)["Head"][:2]
    row, name = next((row, name) for row, name in enumerate(heads) if not name.startswith(layer))
    with redraws(page, "denominators"), redraws(page, "weights"), redraws(page, "distances"):
        click_row(page, "contextual-table", row)
    assert (name, name) == (parameter(page, "head"), values(page)["Head"])
    for heading in (f"{name}: contextual", f"Denominators of {name}",
                    f"Token weights of {name}", f"Kernels of layer {name[1]}"):  # fmt: skip
        expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(page.get_by_text(f"by ascending CV. Selected: {name}.")).to_be_visible()
    etc = float(column(page, "contextual-table", "ETC (tokens)")[row])
    line = page.get_by_test_id("stMain").get_by_role(
        "row", name=re.compile(r"^ETC at n = \d+ \(tokens\)")
    )
    expect(line).to_contain_text(f"{etc:.4g}")
    no_trouble(page)


def a_row_selects_its_head_again(page: Page) -> None:
    name = column(page, "contextual-table", "head")[2]
    assert name != values(page)["Head"]
    for other in ("L3H3", None):
        click_row(page, "contextual-table", 2)
        expect(page.get_by_text(f"Selected: {name}.")).to_be_visible()
        assert name == parameter(page, "head")
        if other:
            side_cell(page, other).click()
            expect(page.get_by_text(f"Selected: {other}.")).to_be_visible()
            settle(page)


def chapters_and_texts_of_ones_own(page: Page) -> None:
    """Each is a line of its own beside the others, named; markup in them is text."""
    lines = set(traces(page, "denominators"))
    with redraws(page, "denominators"):
        seek(page, CHAPTERS, "Exodus 12")
    page.keyboard.press("Escape")
    assert {"Exodus 12"} == set(traces(page, "denominators")) - lines
    first, second = "<i>One</i> king of the land", "Another \"text\" & <script>alert('x')</script>"
    with redraws(page, "denominators"):
        write(page, OWN, f"{first}\n---\n{second}")
    more = [name for name in traces(page, "denominators") if name not in lines]
    assert (3, "Exodus 12") == (len(more), more[-1])
    legend = page.locator(".st-key-figure-denominators .legendtext")
    for begin in ("<i>One</i>", 'Another "text" & <'):
        expect(legend.filter(has_text=begin)).to_have_count(1)
    assert ("Exodus 12", f"{first}\n---\n{second}") == (
        parameter(page, "chapters"), parameter(page, "owntexts"))  # fmt: skip
    no_trouble(page)


def kernels_of_a_layer(page: Page) -> None:
    distance = arrays(page, "distances")["distance"]
    page.keyboard.press("Escape")
    upper = distance[np.triu_indices(len(distance), 1)]
    assert 28 == len(upper)
    assert 0 < (upper >= 0.5).sum() < 28
    expect(said(page, f"Ruled out: {(upper >= 0.5).sum()} of 28 pairs: L2H")).to_be_visible()
    for key, count in (("Home", (upper >= 0).sum()), ("End", (upper >= 1).sum())):
        press(page, APART, key)
        expect(said(page, f"Ruled out: {count} of 28 pairs")).to_be_visible()
    assert "1" == parameter(page, "apart")
    heads = ", ".join(f"L2H{head}" for head in range(8))
    for key, groups_named in (("Home", "none"), ("End", heads)):
        press(page, ALIKE, key)
        expect(said(page, rf"Candidates for superposition: {groups_named}\.")).to_be_visible()
    assert "1" == parameter(page, "alike")
    no_trouble(page)


def what_is_counted_is_what_is_drawn(page: Page) -> None:
    drawn(page, FIGURES)
    assert HEADS == sum(groups(page).values())
    assert counted(page) == groups(page)["contextual"]
    spreads = [float(each) for each in column(page, "contextual-table", "CV")]
    assert sorted(spreads) == spreads
    assert {"contextual"} == set(column(page, "contextual-table", "group"))
