"""The figures of recency and of induction heads, ``show --html``, and wrong input."""

from collections.abc import Callable

import numpy as np
import pytest

from poskernel_core.analyses.drawing import figure_of
from poskernel_core.analyses.induction.figures import (
    candidate_figure,
    induction_figure,
    last_rows_figure,
    probability_figure,
)
from poskernel_core.analyses.induction.role_maps import row_pattern_figure, row_patterns_figure
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import rounded
from tests.support.made_results import SHARE, named, parts, patterns, recency, rows, scores, zero


def test_probabilities_have_error_bars_and_others_are_grey_dots() -> None:
    """Against the position of the last pair."""
    found = recency()
    figure = probability_figure(found)
    for pair, name in enumerate(("[B]", "[C]")):
        curve = named(figure, name)
        np.testing.assert_array_equal(found.coordinates["second"], curve.x)
        np.testing.assert_array_equal(found.values["probability"][:, pair], curve.y)
        np.testing.assert_array_equal(found.errors["probability"][:, pair], curve.error_y.array)
    other = named(figure, "other")
    np.testing.assert_array_equal(found.values["probability_other"], other.y)
    np.testing.assert_array_equal(found.errors["probability_other"], other.error_y.array)
    assert "±" in other.hovertemplate


@pytest.mark.parametrize(("length", "candidates"), [(7, 2), (13, 1), (48, 5)])
def test_candidates_of_a_head(length: int, candidates: int) -> None:
    """One curve each, from one row to many, from one candidate to five."""
    found = recency(length, candidates=candidates)
    figure = candidate_figure(found, 1, 2)
    assert candidates == len(figure.data)
    for pair, curve in enumerate(figure.data):
        mean = found.values["candidate_attention"][:, 1, 2, pair]
        np.testing.assert_array_equal(mean, curve.y)
        np.testing.assert_allclose(mean / 10, curve.error_y.array)
    assert candidates == len({curve.name for curve in figure.data})


def test_last_rows_mark_the_candidates() -> None:
    """Letters stand where B and C stand, and nowhere else; hover has the error."""
    found = recency()
    cells = last_rows_figure(found, 1, 0).data[0]
    np.testing.assert_allclose(found.values["last_row"][:, 1, 0], cells.z, rtol=1e-6)
    np.testing.assert_allclose(found.errors["last_row"][:, 1, 0], cells.customdata, rtol=1e-6)
    roles = np.array(found.text_of("role"))
    marks = np.array(cells.text)
    np.testing.assert_array_equal(roles == "[B]", marks == "B")
    np.testing.assert_array_equal(roles == "[C]", marks == "C")
    assert 2 * len(marks) == (marks != "").sum()
    assert last_rows_figure(recency(48), 0, 0).data[0].text is None


@pytest.mark.parametrize("heads", [1, 8, 12, 32])
def test_small_maps_of_every_head(heads: int) -> None:
    """Every panel holds its pattern, below its title, at the place of its frame; one scale."""
    found = patterns(heads=heads)
    figure = row_patterns_figure(found, 1)
    cells = figure.data[0]
    assert (0, 1) == (cells.zmin, cells.zmax)
    frames = figure.layout.shapes
    assert [f"H{head}" for head in range(heads)] == [
        note.text for note in figure.layout.annotations if note.text.startswith("H")
    ]
    seen = np.tril(np.ones((13, 13), dtype=bool))
    for head, frame in enumerate(frames):
        top, left = round(frame.y0 + 0.5), round(frame.x0 + 0.5)
        panel = np.asarray(cells.z)[top : top + 13, left : left + 13]
        pattern = found.values["pattern"][1, head]
        np.testing.assert_allclose(np.where(seen, pattern, np.nan), panel, rtol=1e-6)
    value, error = (part["pattern"][1, 0, 12, 3] for part in (found.values, found.errors))
    assert f"<b>H0</b> 12 [A] → 3 [B]<br><b>{rounded(value, error)}</b>" == cells.text[12][3]
    assert set("".join(figure.layout.xaxis.ticktext)) == set("ABC")


@pytest.mark.parametrize(
    ("heads", "columns"),
    [(1, 1), (2, 2), (3, 3), (5, 4), (8, 4), (9, 3), (15, 3), (16, 4), (20, 5), (32, 8), (37, 8)],
)
def test_rows_of_small_maps_are_full_where_they_can_be(heads: int, columns: int) -> None:
    """No letters of keys stand below a place without a map, unless the heads fill no rows."""
    frames = row_patterns_figure(patterns(heads=heads), 0).layout.shapes
    assert columns == len({frame.x0 for frame in frames})


def test_long_small_maps_are_pooled_and_say_so() -> None:
    """48 tokens: the largest of every 2 x 2 cells."""
    found = patterns(48, 2)
    figure = row_patterns_figure(found, 0)
    pattern = found.values["pattern"][0, 0]
    assert pattern[46:48, 2:4].max() == pytest.approx(figure.data[0].z[23][1])
    assert "2 × 2" in figure.layout.title.text
    assert "46–47 → 2–3" in figure.data[0].text[23][1]


@pytest.mark.parametrize("length", [13, 48])
def test_one_map_has_roles_on_both_axes(length: int) -> None:
    """All positions while they fit, else the named ones."""
    found = patterns(length)
    figure = row_pattern_figure(found, 1, 3)
    seen = np.tril(np.ones((length, length), dtype=bool))
    expected = np.where(seen, found.values["pattern"][1, 3], np.nan)
    np.testing.assert_allclose(expected, figure.data[0].z, rtol=1e-6)
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert ("3 [B]" if length == 13 else "2 [A][B]") in axis.ticktext


def test_induction_scores_of_all_heads() -> None:
    """The score as colour, its error and the other attentions in the hover."""
    found = scores()
    cells = (figure := induction_figure(found)).data[0]
    np.testing.assert_array_equal(found.values["induction"], cells.z)
    np.testing.assert_array_equal(found.errors["induction"], cells.customdata[..., 0])
    np.testing.assert_array_equal(found.values["duplicate"], cells.customdata[..., 1])
    assert SHARE in [note.text for note in figure.layout.annotations]


@pytest.mark.parametrize(
    ("make", "whole", "one"),
    [
        (scores, "Induction score of every head", "Attention in a sequence repeated"),
        (recency, "What follows the last [A]", "Attention to candidates"),
        (patterns, "mean attention", "Mean attention"),
        (rows, "Norm of layer 0's outputs", "Attention from position 47"),
        (parts, "How far heads look back", "Attention by offset"),
        (zero, "What follows the last [A]", "Attention of the last [A]"),
    ],
)
def test_show_html_draws_all_heads_or_one(make: Callable[[], Result], whole: str, one: str) -> None:
    """With and without a selected head, and with a query."""
    found = make()
    head = found.select(layer=1, head=2)
    assert whole in figure_of(found).layout.title.text
    assert one == figure_of(head).layout.title.text
    if any("query" in axes for axes in found.axes.values()):
        assert figure_of(head.select(query=8)).data
        assert figure_of(found.select(query=8)).data


def test_a_selected_row_knows_its_query() -> None:
    """It is the last key that is seen."""
    for found, query in ((rows(), 20), (parts(), 9)):
        figure = figure_of(found.select(layer=0, head=1, query=query))
        assert f"Attention from position {query}" == figure.layout.title.text
