"""The page on contextual heads: its numbers as a script, its rows and legend in a browser."""

import re
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from streamlit.testing.v1 import AppTest

from pages.contextual.page import pairs_told
from pages.shared.jobs import results
from poskernel_core.analyses.contextual_heads.spec import BEHAVIOURS, regrouped
from tests.support.bound import figure_on, fine, opened
from tests.support.made_findings import made
from tests.support.visit import no_trouble, parameter, redraws, settle, side_cell, values
from tests.support.visit_tables import click_row, column, wide
from tools.recorded import figures_on

CHAPTER = "Exodus 12"
OWN = "<i>One</i> king of the land\n---\nAnother \"text\" & <script>alert('x')</script>"


@pytest.fixture
def known(monkeypatch):
    """The results that the page has had, by their question."""
    found, fetch = {}, results.fetch

    def noted(question, *more):
        found[question.name] = fetch(question, *more)
        return found[question.name]

    monkeypatch.setattr(results, "fetch", noted)
    return found


@pytest.fixture
def show(computed, known):
    def go_to(**link):
        given = {"context": "128", "windows": "20", "firstwindows": "8", "head": "L2H1"}
        return fine(opened("contextual", **given | link))

    return go_to


def words(app):
    """What the page says, without its links."""
    return re.sub(r"\]\([^)]*\)|\[|\*", "", " ".join(each.value for each in app.markdown))


@pytest.mark.slow
def test_groups_are_those_of_the_limits(show, known):
    """Which limit makes which group: `test_duplicates.py`; contextual heads are listed first."""
    app = show(broad="30", steady="2", dlocal="0.6", duplicates="0.4")
    limits = {"broad": 30.0, "steady": 2.0, "local": 0.6, "duplicates": 0.4}
    groups = regrouped(known["contextual-heads"], **limits).text_of("group")
    drawn = {each.name: len(each.x) for each in figure_on(app, "plane").data}
    assert Counter(chain(*groups)) == {name: drawn[name] for name in drawn if name in BEHAVIOURS}
    (table,) = (each.value for each in app.dataframe if "CV" in each.value)
    first = table[: drawn["contextual"]]
    assert {"contextual"} == set(first["group"])
    assert sorted(first["CV"]) == [*first["CV"]]


@pytest.mark.slow
def test_kernels_of_a_layer(show, known):
    app = show(apart="0.25", alike="1.0")
    distance = known["kernel-distances"].select(layer=2).values["distance"]
    upper = distance[np.triu_indices(8, 1)]
    assert 0 < (upper >= 0.25).sum() < 28
    assert f"Ruled out: {(upper >= 0.25).sum()} of 28 pairs" in words(app)
    every = ", ".join(f"L2H{head}" for head in range(8))
    assert f"Candidates for superposition: {every}." in words(app)


def test_pairs_that_errors_leave_open():
    """They are not ruled out, and no group of theirs is resolved; each pair counts once."""
    distance, error = np.full((5, 5), 0.9), np.full((5, 5), 0.01)
    distance[:3, :3], distance[3:, 3:], error[3:, 3:] = 0.02, 0.08, 0.2
    distance[0, 4] = distance[4, 0] = 0.51
    layer = made(
        "kernel-distances", {"distance": distance, "group": [0, 0, 0, 1, 1]}, {"distance": error},
        chosen={"layer": 1},
    )  # fmt: skip
    told = re.sub(r"\]\([^)]*\)|\[|\*", "", pairs_told(layer, 0.1, 0.5))
    assert "superposition: L1H0, L1H1, L1H2; L1H3, L1H4 (not resolved)." in told
    assert "Ruled out: 5 of 10 pairs (1 more can't be told): L1H0–L1H3, L1H1–" in told


def test_windows_are_told_as_they_are_read():
    """Sixty-four of them cannot be dealt to ten groups equally: sixty are read, and offered."""

    def controls():
        import streamlit as st

        from pages.shared.choices.choices import open_choices, open_page
        from pages.shared.experiments.contextual_controls import choose_first_windows

        open_choices("page")
        open_page()
        choose_first_windows(st, 64, 200)

    (slider,) = fine(AppTest.from_function(controls).run()).select_slider
    assert (64, ["8", "10", "30", "60", "120"]) == (slider.value, slider.options)


def test_no_key_is_left(show):
    app = show(query="15", skip="15")
    assert any("no keys are left to average over" in each.value for each in app.info)
    assert "distances" not in figures_on(app)


@pytest.mark.browser
def test_rows_and_words_of_a_reader(page, server):
    page = wide(page, server, "/contextual")(head="L0H1", chapters=CHAPTER, owntexts=OWN)
    legend = page.locator(".st-key-figure-denominators .legendtext")
    for begin in (CHAPTER, "<i>One</i>", 'Another "text" & <'):
        expect(legend.filter(has_text=begin)).to_have_count(1)
    a_row_selects_its_head_again(page)
    a_row_selects_a_head(page)
    no_trouble(page)


def a_row_selects_a_head(page: Page) -> None:
    heads, layer = column(page, "contextual-table", "head"), values(page)["Head"][:2]
    row, name = next((row, name) for row, name in enumerate(heads) if not name.startswith(layer))
    with redraws(page, "denominators"), redraws(page, "weights"), redraws(page, "distances"):
        click_row(page, "contextual-table", row)
    assert (name, name) == (parameter(page, "head"), values(page)["Head"])
    for heading in (f"{name}: contextual", f"Denominators of {name}",
                    f"Token weights of {name}", f"Kernels of layer {name[1]}"):  # fmt: skip
        expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    etc = float(column(page, "contextual-table", "ETC (tokens)")[row])
    line = page.get_by_test_id("stMain").get_by_role(
        "row", name=re.compile(r"^Effective token count \(ETC\) of .+ at n = \d+")
    )
    expect(line).to_contain_text(f"{etc:.4g}")


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
