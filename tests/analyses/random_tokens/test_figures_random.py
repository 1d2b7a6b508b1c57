"""The figures of the experiments on random tokens draw what their results hold."""

import numpy as np
import pytest

from poskernel_core.analyses.drawing import figure_of
from poskernel_core.analyses.induction import figures as of_induction
from poskernel_core.analyses.induction.role_maps import row_pattern_figure, row_patterns_figure
from poskernel_core.analyses.position_vs_token import figures as draw
from poskernel_core.analyses.position_vs_token.spec import CONDITIONS
from poskernel_core.analyses.random_tokens.figures import intrinsic_figure, norm_figure
from poskernel_core.plotting.conditions import measured
from tests.support.made_results import (
    CASES,
    band_of,
    check_curve,
    named,
    parts,
    patterns,
    recency,
    rows,
    scores,
    zero,
)


@pytest.mark.parametrize("query", [0, 2, 47])
def test_intrinsic_row_with_its_trend(query: int) -> None:
    found = rows()
    row, error = (part["pattern"][1, 2, query] for part in (found.values, found.errors))
    figure = intrinsic_figure(found, 1, 2, query)
    aside = named(figure, "left out")
    np.testing.assert_allclose([(row[key], error[key]) for key in aside.x], aside.customdata)
    assert {0, query} == set(aside.x)
    if query < 2:
        assert 1 == len(figure.data)
        return
    curve = named(figure, "mean")
    check_curve(curve, np.arange(1, query), row[1:query], error[1:query])
    if query > 2:
        trend, slope = named(figure, "slope"), found.values["slope"][1, 2, query]
        assert slope == pytest.approx((trend.y[-1] - trend.y[0]) / (trend.x[-1] - trend.x[0]))
        assert row[1:query].mean() == pytest.approx(np.mean([trend.y[0], trend.y[-1]]))
        fitted = slope * (curve.x - np.mean(curve.x)) + np.mean(curve.y)
        left = ((curve.y - fitted) ** 2).sum() / ((curve.y - np.mean(curve.y)) ** 2).sum()
        assert f"R² {1 - left:.2f}, ".replace("-", "−") in trend.name


def test_a_trend_leaves_out_what_a_window_hides() -> None:
    """Keys 0 to 20 have no attention; the line lies in the others, and explains all of them."""
    found = rows()
    row = found.values["pattern"][1, 2, 47]
    row[:21] = 0
    row[21:] = 0.01 + 0.001 * np.arange(27)
    found.values["slope"][1, 2, 47] = 0.001
    trend = named(intrinsic_figure(found, 1, 2, 47), "slope")
    assert (21, 46, True) == (trend.x[0], trend.x[-1], "R² 1.00, " in trend.name)
    np.testing.assert_allclose(trend.y, [row[21], row[46]], rtol=1e-6)


def test_a_large_key_0_stands_at_the_edge_with_its_value() -> None:
    found = rows()
    row = found.values["pattern"][0, 0, 47]
    row[:], row[0] = 0.001, 0.9
    figure = intrinsic_figure(found, 0, 0, 47)
    assert (1, True) == (len(figure.layout.annotations), figure.layout.yaxis.range[1] < 0.1)
    aside = named(intrinsic_figure(found, 0, 0, 47, log_y=True), "left out")
    assert 0.9 == dict(zip(aside.x, aside.y, strict=True))[0]


def test_norms_with_exponents_and_the_reference() -> None:
    """Log-log; the reference falls as 1 / sqrt(n + 1) through the geometric mean at position 1."""
    found = rows(heads=4)
    figure = norm_figure(found, [3, 1])
    check_curve(named(figure, "H3"), np.arange(1, 49), found.values["norm"][3],
                found.errors["norm"][3])  # fmt: skip
    exponent = measured(found.values["norm_exponent"][1], found.errors["norm_exponent"][1])
    assert exponent in named(figure, "H1").name
    line = np.array(named(figure, "1/√").y)
    np.testing.assert_allclose(line[0] / np.sqrt(np.arange(1, 49)), line)
    assert np.sqrt(found.values["norm"][[3, 1], 1].prod()) == pytest.approx(line[1])


@pytest.mark.parametrize(("factor", "told"), [(1, "< 1 %"), (2.5, "≤ 2.5×"), (1 / 3, "≤ 3×")])
def test_how_far_a_curve_lies_off_its_power_law(factor, told) -> None:
    """16 of 47 positions are moved off 1/√tokens, and draw the line with them by 16/47 of that."""
    found = rows(heads=1)
    found.values["norm_exponent"][0] = -0.5
    found.values["norm"][0] = found.values["visible_keys"].astype(float) ** -0.5
    found.values["norm"][0, 0] = 1000  # no part of the fit
    found.values["norm"][0, 1::3] *= factor ** (47 / 31)
    assert named(norm_figure(found), "H0").name.endswith(f"off {told}")


def test_ablated_heads_have_no_exponent() -> None:
    found = rows()
    found.values["norm"][1], found.values["norm_exponent"][1] = 0, np.nan
    assert "ablated" in named(norm_figure(found), "H1").name
    assert "not defined" == measured(np.nan, np.nan)


def test_three_conditions() -> None:
    """Rows up to the query, profiles up to half of the length, and the map of one condition."""
    found = parts()
    for name in ("score", "pattern"):
        figure = getattr(draw, f"{name}_conditions_figure")(found, 1, 2, 8)
        for condition, label in enumerate(CONDITIONS):
            mean = found.values[name][condition, 1, 2, 8, :9]
            curve = named(figure, label)
            check_curve(curve, y=mean, error=mean / 10)
            np.testing.assert_allclose(1.1 * mean, band_of(figure, curve.name).y)
    expected = found.values["profile"][1, 0, 1, :7]
    curve = named(draw.look_back_figure(found, 0, 1), "position only, most at k = 2")
    check_curve(curve, y=expected, error=expected / 10)
    cells = draw.condition_map_figure(found, 1, 0, 2).data[0].z
    np.testing.assert_allclose(found.values["pattern"][2, 1, 0], np.nan_to_num(cells), rtol=1e-6)


def test_position_zero_rings_b_in_every_case() -> None:
    found = zero()
    figure = draw.position_zero_figure(found, 1, 1)
    for case, name in enumerate(CASES):
        row = found.values["last_row"][case, 1, 1]
        check_curve(named(figure, name), y=row, error=row / 10)
        check_curve(named(figure, f"[B]: {name}"), [2], row[2:3])


def test_recency() -> None:
    """Probabilities with their errors, the attention to each candidate, and rows with marks."""
    found = recency(candidates=3)
    figure, seconds = of_induction.probability_figure(found), found.coordinates["second"]
    mean = found.values["probability"]
    for name, row in (("[B]", mean[:, 0]), ("other", found.values["probability_other"])):
        check_curve(named(figure, name), seconds, row, row / 10)
    curves = of_induction.candidate_figure(found, 1, 2).data
    for pair, row in enumerate(found.values["candidate_attention"][:, 1, 2].T):
        check_curve(curves[pair], y=row, error=row / 10)
    cells = of_induction.last_rows_figure(recency(), 1, 0).data[0]
    np.testing.assert_allclose(recency().values["last_row"][:, 1, 0], cells.z, rtol=1e-6)
    roles, marks = np.array(recency().text_of("role")), np.array(cells.text)
    for letter in "BC":
        np.testing.assert_array_equal(roles == f"[{letter}]", marks == letter)


def test_small_maps_of_every_head() -> None:
    found = patterns(heads=12)
    figure = row_patterns_figure(found, 1)
    cells, seen = np.array(figure.data[0].z), np.tri(13) > 0
    for pattern, frame in zip(found.values["pattern"][1], figure.layout.shapes, strict=True):
        top, left = round(frame.y0 + 0.5), round(frame.x0 + 0.5)
        panel = cells[top : top + 13, left : left + 13]
        np.testing.assert_allclose(np.where(seen, pattern, np.nan), panel, rtol=1e-6)
    long = patterns(48, 2)  # pooled
    pooled = row_patterns_figure(long, 0).data[0].z[23][1]
    assert long.values["pattern"][0, 0, 46:48, 2:4].max() == pytest.approx(pooled)
    one = np.nan_to_num(row_pattern_figure(long, 1, 1).data[0].z)
    np.testing.assert_allclose(long.values["pattern"][1, 1], one, rtol=1e-6)


def test_induction_scores_of_all_heads() -> None:
    cells = of_induction.induction_figure(scores()).data[0]
    np.testing.assert_array_equal(scores().values["induction"], cells.z)
    np.testing.assert_array_equal(scores().errors["induction"], cells.customdata[..., 0])
    np.testing.assert_array_equal(scores().values["duplicate"], cells.customdata[..., 1])


@pytest.mark.parametrize("make", [scores, recency, patterns, rows, parts, zero])
def test_all_heads_or_one(make) -> None:
    """And a selected row ends at its query."""
    found = make()
    assert figure_of(found).data
    assert figure_of(found.select(layer=1, head=2)).data
    if make in (rows, parts):
        assert figure_of(found.select(query=8)).data
        one = figure_of(found.select(layer=0, head=1, query=9))
        assert 9 == max(max(trace.x) for trace in one.data)
