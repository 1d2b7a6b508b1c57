"""The figures of recency and of induction heads, ``show --html``, and wrong input."""

from collections.abc import Callable

import numpy as np
import pytest

from poskernel_core.analyses.drawing import figure_of
from poskernel_core.analyses.induction import figures as draw
from poskernel_core.analyses.induction.role_maps import row_pattern_figure, row_patterns_figure
from poskernel_core.common.result import Result
from tests.support.made_results import (
    check_curve,
    named,
    parts,
    patterns,
    recency,
    rows,
    scores,
    zero,
)


def test_probabilities_with_their_errors() -> None:
    found = recency()
    figure, seconds = draw.probability_figure(found), found.coordinates["second"]
    for pair, name in enumerate(("[B]", "[C]")):
        mean, error = (part["probability"][:, pair] for part in (found.values, found.errors))
        check_curve(named(figure, name), seconds, mean, error)
    mean, error = (part["probability_other"] for part in (found.values, found.errors))
    check_curve(named(figure, "other"), seconds, mean, error)


@pytest.mark.parametrize(("length", "candidates"), [(7, 2), (13, 1), (48, 5)])
def test_candidates_of_a_head(length: int, candidates: int) -> None:
    found = recency(length, candidates=candidates)
    figure = draw.candidate_figure(found, 1, 2)
    assert candidates == len(figure.data)
    for pair, curve in enumerate(figure.data):
        mean = found.values["candidate_attention"][:, 1, 2, pair]
        check_curve(curve, y=mean, error=mean / 10)


def test_last_rows_mark_the_candidates() -> None:
    found = recency()
    cells = draw.last_rows_figure(found, 1, 0).data[0]
    np.testing.assert_allclose(found.values["last_row"][:, 1, 0], cells.z, rtol=1e-6)
    roles = np.array(found.text_of("role"))
    marks = np.array(cells.text)
    np.testing.assert_array_equal(roles == "[B]", marks == "B")
    np.testing.assert_array_equal(roles == "[C]", marks == "C")
    assert 2 * len(marks) == (marks != "").sum()
    assert draw.last_rows_figure(recency(48), 0, 0).data[0].text is None


@pytest.mark.parametrize("heads", [1, 8, 12, 32])
def test_small_maps_of_every_head(heads: int) -> None:
    found = patterns(heads=heads)
    figure = row_patterns_figure(found, 1)
    cells = figure.data[0]
    assert (0, 1) == (cells.zmin, cells.zmax)
    frames = figure.layout.shapes
    seen = np.tril(np.ones((13, 13), dtype=bool))
    for head, frame in enumerate(frames):
        top, left = round(frame.y0 + 0.5), round(frame.x0 + 0.5)
        panel = np.asarray(cells.z)[top : top + 13, left : left + 13]
        pattern = found.values["pattern"][1, head]
        np.testing.assert_allclose(np.where(seen, pattern, np.nan), panel, rtol=1e-6)


@pytest.mark.parametrize(
    ("heads", "columns"),
    [(1, 1), (2, 2), (3, 3), (5, 4), (8, 4), (9, 3), (15, 3), (16, 4), (20, 5), (32, 8), (37, 8)],
)
def test_rows_of_small_maps_are_full_where_they_can_be(heads: int, columns: int) -> None:
    frames = row_patterns_figure(patterns(heads=heads), 0).layout.shapes
    assert columns == len({frame.x0 for frame in frames})


def test_long_small_maps_are_pooled_and_say_so() -> None:
    found = patterns(48, 2)
    figure = row_patterns_figure(found, 0)
    pattern = found.values["pattern"][0, 0]
    assert pattern[46:48, 2:4].max() == pytest.approx(figure.data[0].z[23][1])


@pytest.mark.parametrize("length", [13, 48])
def test_one_map_has_roles_on_both_axes(length: int) -> None:
    found = patterns(length)
    figure = row_pattern_figure(found, 1, 3)
    seen = np.tril(np.ones((length, length), dtype=bool))
    expected = np.where(seen, found.values["pattern"][1, 3], np.nan)
    np.testing.assert_allclose(expected, figure.data[0].z, rtol=1e-6)


def test_induction_scores_of_all_heads() -> None:
    found = scores()
    cells = draw.induction_figure(found).data[0]
    np.testing.assert_array_equal(found.values["induction"], cells.z)
    np.testing.assert_array_equal(found.errors["induction"], cells.customdata[..., 0])
    np.testing.assert_array_equal(found.values["duplicate"], cells.customdata[..., 1])


@pytest.mark.parametrize("make", [scores, recency, patterns, rows, parts, zero])
def test_show_html_draws_all_heads_or_one(make: Callable[[], Result]) -> None:
    found = make()
    head = found.select(layer=1, head=2)
    assert figure_of(found).data
    assert figure_of(head).data
    if any("query" in axes for axes in found.axes.values()):
        assert figure_of(head.select(query=8)).data
        assert figure_of(found.select(query=8)).data


@pytest.mark.parametrize(("found", "query"), [(rows(), 20), (parts(), 9)])
def test_a_selected_row_ends_at_its_query(found: Result, query: int) -> None:
    figure = figure_of(found.select(layer=0, head=1, query=query))
    assert query == max(max(trace.x) for trace in figure.data)
