"""The figures of attention to random tokens, and of position against token."""

import numpy as np
import pytest

from poskernel_core.analyses.position_vs_token import figures as draw
from poskernel_core.analyses.position_vs_token.spec import CONDITIONS
from poskernel_core.analyses.random_tokens.figures import intrinsic_figure, norm_figure
from poskernel_core.plotting.conditions import measured
from tests.support.made_results import CASES, band_of, check_curve, named, parts, rows, zero


@pytest.mark.parametrize("query", [0, 1, 2, 12, 47])
def test_intrinsic_row_with_its_trend(query: int) -> None:
    found = rows()
    row, error = (part["pattern"][1, 2, query] for part in (found.values, found.errors))
    figure = intrinsic_figure(found, 1, 2, query)
    aside = named(figure, "left out")
    np.testing.assert_allclose([row[key] for key in aside.x], [c[0] for c in aside.customdata])
    np.testing.assert_allclose([error[key] for key in aside.x], [c[1] for c in aside.customdata])
    assert {0, query} == set(aside.x)
    if query < 2:
        assert 1 == len(figure.data)
        return
    curve, trend = named(figure, "mean"), named(figure, "slope")
    check_curve(curve, np.arange(1, query), row[1:query], error[1:query])
    if query > 2:
        slope = found.values["slope"][1, 2, query]
        assert slope == pytest.approx((trend.y[-1] - trend.y[0]) / (trend.x[-1] - trend.x[0]))
    assert row[1:query].mean() == pytest.approx(np.mean([trend.y[0], trend.y[-1]]))
    if query > 2:
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
    assert (21, 46) == (trend.x[0], trend.x[-1])
    np.testing.assert_allclose(trend.y, [row[21], row[46]], rtol=1e-6)
    assert "R² 1.00, " in trend.name


def test_a_large_key_0_stands_at_the_edge_with_its_value() -> None:
    found = rows()
    row = found.values["pattern"][0, 0, 47]
    row[:] = 0.001
    row[0] = 0.9
    figure = intrinsic_figure(found, 0, 0, 47)
    assert figure.layout.yaxis.range[1] < 0.1
    assert 1 == len(figure.layout.annotations)
    aside = named(figure, "left out")
    assert dict(zip(aside.x, aside.y, strict=True))[0] < figure.layout.yaxis.range[1]
    log = intrinsic_figure(found, 0, 0, 47, log_y=True)
    aside = named(log, "left out")
    assert 0.9 == dict(zip(aside.x, aside.y, strict=True))[0]
    assert () == log.layout.annotations


def test_rows_without_a_trend_have_no_line() -> None:
    found = rows()
    found.values["slope"][:] = np.nan
    assert 1 == len([t for t in intrinsic_figure(found, 0, 0, 2).data if "mean" not in t.name])


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
    assert 5 == len({t.name for t in norm_figure(found).data if "s.e." not in t.name})


@pytest.mark.parametrize(
    ("factor", "told"),
    [(1, "off < 1 %"), (1.1, "off ≤ 10 %"), (2.5, "off ≤ 2.5×"), (1 / 3, "off ≤ 3×")],
)
def test_how_far_a_curve_lies_off_its_power_law(factor, told) -> None:
    """16 of 47 positions are moved off 1/√tokens, and draw the line with them by 16/47 of that."""
    found = rows(heads=1)
    seen = found.values["visible_keys"].astype(float)
    found.values["norm_exponent"][0] = -0.5
    found.values["norm"][0] = seen**-0.5
    found.values["norm"][0, 0] = 1000  # no part of the fit
    found.values["norm"][0, 1::3] *= factor ** (47 / 31)
    assert named(norm_figure(found), "H0").name.endswith(told)


def test_ablated_heads_have_no_exponent() -> None:
    found = rows()
    found.values["norm"][1] = 0
    found.values["norm_exponent"][1] = np.nan
    assert "ablated" in named(norm_figure(found), "H1").name
    found.values["norm"][:] = 0
    assert norm_figure(found).layout.yaxis.type == "log"


def test_measured_values_that_are_none() -> None:
    assert "not defined" == measured(np.nan, np.nan)


@pytest.mark.parametrize("query", [0, 8])
def test_three_conditions_up_to_the_query(query: int) -> None:
    found = parts()
    for name in ("score", "pattern"):
        figure = getattr(draw, f"{name}_conditions_figure")(found, 1, 2, query)
        for condition, label in enumerate(CONDITIONS):
            mean = found.values[name][condition, 1, 2, query, : query + 1]
            curve = named(figure, label)
            check_curve(curve, y=mean, error=mean / 10)
            np.testing.assert_allclose(1.1 * mean, band_of(figure, curve.name).y)


@pytest.mark.parametrize("length", [13, 48])
def test_look_back_up_to_half_of_the_length(length: int) -> None:
    found = parts(length)
    figure = draw.look_back_figure(found, 0, 1)
    curve = named(figure, "position only, most at k = 2")
    expected = found.values["profile"][1, 0, 1, : length // 2 + 1]
    check_curve(curve, y=expected, error=expected / 10)


@pytest.mark.parametrize("length", [13, 48])
def test_map_of_one_condition(length: int) -> None:
    found = parts(length)
    cells = draw.condition_map_figure(found, 1, 0, 2).data[0]
    last = found.values["pattern"][2, 1, 0][length - 1]
    np.testing.assert_allclose(last, cells.z[length - 1], rtol=1e-6)
    assert np.isnan(cells.z[0][1])


def test_position_zero_rings_b_in_every_case() -> None:
    found = zero()
    figure = draw.position_zero_figure(found, 1, 1)
    for case, name in enumerate(CASES):
        row = found.values["last_row"][case, 1, 1]
        curve, ring = named(figure, name), named(figure, f"[B]: {name}")
        check_curve(curve, y=row, error=row / 10)
        check_curve(ring, [2], row[2:3])
