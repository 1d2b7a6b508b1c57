"""A head's kernel and mean attention over the offset."""

import numpy as np
import pytest

from poskernel_core.analyses.kernels.figures import RATIO_FLOOR, diagonals, head_curve
from poskernel_core.plotting.curves import NEAR
from poskernel_core.plotting.layout import FLOOR
from tests.support.made_results import check_curve, result

KEYS, SKIP = 67, 4
COLUMNS = ("kernel", "kernel_low", "kernel_high", "observed")
SHORT, LONG = 23, 61
"""Query positions: all offsets fit as points, or only the near ones."""


@pytest.fixture
def found():
    """Kernels of three heads; at one offset that of the first is 0."""
    found = result("kernel", dict.fromkeys(COLUMNS, (1, 3, KEYS)))
    found.params.update(skip=SKIP, source="mean")
    for name in ("kernel", "kernel_low"):
        found.values[name][0, 0, 5] = 0
    return found


@pytest.fixture
def head(found):
    return found.select(layer=0, head=0)


def parts(figure, name):
    """The points and the line of one curve, without the bands' edges."""
    return {trace.mode: trace for trace in figure.data
            if trace.name == name and trace.line.width != 0}  # fmt: skip


@pytest.mark.parametrize("log_y", [False, True])
@pytest.mark.parametrize(("query", "log_x", "points"),
                         [(SHORT, True, 20), (LONG, True, NEAR + 1), (LONG, False, 0)])  # fmt: skip
def test_a_kernel_with_its_spread_and_the_observed_attention(head, query, log_x, log_y, points):
    """A point lies at offset + 1 on a log axis, and a zero at the floor."""
    figure = head_curve(head, query, log_x=log_x, log_y=log_y)
    turned = {name: head.values[name][SKIP : query + 1][::-1] for name in COLUMNS}
    offset = np.arange(query + 1 - SKIP)
    shown = {name: np.maximum(row, FLOOR * log_y) for name, row in turned.items()}

    for column, name in (("kernel", "kernel K (mean)"), ("observed", "observed attention (mean)")):
        drawn = parts(figure, name)
        for mode, part in (("markers", slice(points)), ("lines", slice(points, None))):
            if len(offset[part]):
                check_curve(drawn[mode], offset[part] + log_x, shown[column][part])
    data = [trace.customdata for trace in figure.data if trace.customdata is not None]
    np.testing.assert_array_equal(
        np.stack([offset, *turned.values()], axis=-1), np.concatenate(data)
    )
    if points:
        bars = parts(figure, "kernel K (mean)")["markers"].error_y
        high = shown["kernel"][:points] + bars.array
        np.testing.assert_allclose(shown["kernel_high"][:points], high)
    if points < len(offset):
        band = [trace.y for trace in figure.data if trace.line.width == 0]
        rows = [shown[f"kernel_{end}"][points:] for end in ("low", "high")]
        np.testing.assert_array_equal(rows, band[:2])


def test_the_ratio_of_attention_to_kernel(head):
    """There is none where the kernel is below the floor; the axis is centred on 1."""
    head.values["kernel"][7] = 0.9 * RATIO_FLOOR
    figure = head_curve(head, SHORT, log_x=False)
    kernel, observed = (
        head.values[name][SKIP : SHORT + 1][::-1] for name in ("kernel", "observed")
    )
    gone = np.isin(np.arange(SHORT, SKIP - 1, -1), [5, 7])
    ratio = np.where(gone, np.nan, observed / np.where(gone, 1, kernel))
    np.testing.assert_allclose(parts(figure, "observed / K")["markers"].y, ratio)
    low, high = figure.layout.yaxis2.range
    assert low == -high


def test_without_an_observation(head):
    head.params["source"] = "text"
    figure = head_curve(head, LONG, log_x=False)
    assert not [trace for trace in figure.data if trace.line.width == 0]  # one query has no band
    assert parts(figure, "observed attention in this text")
    del head.values["observed"]
    assert ["kernel K"] == [trace.name for trace in head_curve(head, LONG, log_x=False).data]


def test_other_heads_beneath(found):
    """They are the first trace, and do not flatten the head's own curve."""
    others = found.values["kernel"][0, 1:].copy()
    others[0, 11] = 100.0
    head = found.select(layer=0, head=0)
    figure = head_curve(head, SHORT, log_x=False, others=others)
    below = np.reshape(figure.data[0].y, (2, SHORT + 2 - SKIP))
    np.testing.assert_array_equal(others[:, SKIP : SHORT + 1][:, ::-1], below[:, :-1])
    assert 3 > figure.layout.yaxis.range[1] > head.values["kernel_high"].max()


def test_mean_attention_by_offset():
    found = result("profile", {"profile": (1, 3, 13)})
    head = found.select(layer=0, head=0)
    _, mean = diagonals(head, most=6).data
    expected = head.values["profile"][:7]
    check_curve(mean, y=expected, error=expected / 10)
