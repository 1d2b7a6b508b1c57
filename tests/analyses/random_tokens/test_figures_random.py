"""The figures of the experiments on random tokens draw what their results hold."""

import numpy as np
import pytest

from poskernel_core.analyses.random_tokens.figures import explained
from poskernel_core.analyses.views import figure_of, finding_of
from poskernel_core.plotting.conditions import measured
from tests.support.made_findings import made
from tests.support.made_results import answer, check_curve, named

LENGTH = {"query": 48, "key": 48, "pos": 48}


def rows(heads=3):
    """Attention to random tokens; the norm is at as many tokens as are visible."""
    found = answer("random-attention", sizes=LENGTH | {"head_of_layer_0": heads},
                   coordinates={"query": np.arange(48)}, trend_from=1)  # fmt: skip
    found.values["pattern"][:] = np.tril(found.values["pattern"])
    found.values["visible_keys"][:] = np.arange(1, 49)
    return found


def row_figure(found, query, layer=1, head=2, **choices):
    """What a head gives to random tokens from one position."""
    return figure_of(found.select(layer=layer, head=head, query=query), **choices)


@pytest.mark.parametrize("query", [0, 2, 47])
def test_intrinsic_row_with_its_trend(query: int) -> None:
    found = rows()
    row, error = (part["pattern"][1, 2, query] for part in (found.values, found.errors))
    figure = row_figure(found, query)
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
    trend = named(row_figure(found, 47), "slope")
    assert (21, 46, True) == (trend.x[0], trend.x[-1], "R² 1.00, " in trend.name)
    np.testing.assert_allclose(trend.y, [row[21], row[46]], rtol=1e-6)


def test_a_large_key_0_stands_at_the_edge_with_its_value() -> None:
    found = rows()
    row = found.values["pattern"][0, 0, 47]
    row[:], row[0], found.errors["pattern"][:] = 0.001, 0.9, 1e-4
    figure = row_figure(found, 47, 0, 0)
    assert (1, True) == (len(figure.layout.annotations), figure.layout.yaxis.range[1] < 0.1)
    aside = named(row_figure(found, 47, 0, 0, log_y=True), "left out")
    assert 0.9 == dict(zip(aside.x, aside.y, strict=True))[0]


def test_norms_with_exponents_and_the_reference() -> None:
    """Log-log; the reference falls as 1 / sqrt(n + 1) through the geometric mean at position 1."""
    found = rows(heads=4)
    figure = figure_of(found)
    check_curve(named(figure, "H3"), np.arange(1, 49), found.values["norm"][3],
                found.errors["norm"][3])  # fmt: skip
    exponent = measured(found.values["norm_exponent"][1], found.errors["norm_exponent"][1])
    assert exponent in named(figure, "H1").name
    line = np.array(named(figure, "1/√").y)
    np.testing.assert_allclose(line[0] / np.sqrt(np.arange(1, 49)), line)
    assert found.values["norm"][:, 1].prod() ** 0.25 == pytest.approx(line[1])


@pytest.mark.parametrize(("factor", "told"), [(1, "< 1 %"), (2.5, "≤ 2.5×"), (1 / 3, "≤ 3×")])
def test_how_far_a_curve_lies_off_its_power_law(factor, told) -> None:
    """16 of 47 positions are moved off 1/√tokens, and draw the line with them by 16/47 of that."""
    found = rows(heads=1)
    found.values["norm_exponent"][0] = -0.5
    found.values["norm"][0] = found.values["visible_keys"].astype(float) ** -0.5
    found.values["norm"][0, 0] = 1000  # no part of the fit
    found.values["norm"][0, 1::3] *= factor ** (47 / 31)
    assert named(figure_of(found), "H0").name.endswith(f"off {told}")


def test_ablated_heads_have_no_exponent() -> None:
    found = rows()
    found.values["norm"][1], found.values["norm_exponent"][1] = 0, np.nan
    assert "ablated" in named(figure_of(found), "H1").name
    assert "not defined" == measured(np.nan, np.nan)


def test_recency() -> None:
    """Candidates are marked in the rows."""
    found = answer("induction-recency")
    rows = found.only("last_row", "role").select(layer=1, head=0)
    marks = np.array(figure_of(rows).data[0].text)
    roles = np.array(found.text_of("role"))
    for letter in "BC":
        np.testing.assert_array_equal(roles == f"[{letter}]", marks == letter)


def test_small_maps_of_every_head() -> None:
    found = answer("recency-patterns", sizes={"query": 13, "key": 13, "pos": 13, "head": 12})
    figure = figure_of(found.select(layer=1))
    cells, seen = np.array(figure.data[0].z), np.tri(13) > 0
    for pattern, frame in zip(found.values["pattern"][1], figure.layout.shapes, strict=True):
        top, left = round(frame.y0 + 0.5), round(frame.x0 + 0.5)
        panel = cells[top : top + 13, left : left + 13]
        np.testing.assert_allclose(np.where(seen, pattern, np.nan), panel, rtol=1e-6)
    long = answer("recency-patterns", sizes=LENGTH | {"head": 2})  # pooled
    long.values["pattern"][:] = np.tril(long.values["pattern"])
    pooled = figure_of(long.select(layer=0)).data[0].z[23][1]
    assert long.values["pattern"][0, 0, 46:48, 2:4].max() == pytest.approx(pooled)
    one = np.nan_to_num(figure_of(long.select(layer=1, head=1)).data[0].z)
    np.testing.assert_allclose(long.values["pattern"][1, 1], one, rtol=1e-6)


def test_a_line_is_told_where_it_explains_half_of_the_row():
    """One spike near the query tilts a line, too."""
    line, spike = np.linspace(0.01, 0.03, 50), np.full(50, 0.015)
    spike[45] = 0.3
    for row, told in ((line, True), (spike, False)):
        keys = np.arange(3, 49)
        slope = np.polyfit(keys, row[3:49], 1)[0]
        values = {"pattern": row, "slope": slope}
        at, params = {"layer": 1, "head": 2, "query": 49}, {"trend_from": 3}
        result = made("random-attention", values, {"slope": 1e-6}, chosen=at, params=params)
        assert told == (explained(keys, row[3:49], slope) >= 0.5)
        assert told == ("more to recent keys" in finding_of(result))
