"""A head's kernel and mean attention over the offset."""

import numpy as np
import pytest

from poskernel_core.analyses.kernels.figures import head_curve, profile_figure
from poskernel_core.plotting.layout import FLOOR
from tests.support.made_results import check_curve, result

QUERY, SKIP = 10, 4
OFFSET = np.arange(QUERY + 1 - SKIP)
COLUMNS = ("kernel", "kernel_low", "kernel_high", "observed")


@pytest.fixture
def head():
    """One head's kernel at a query that is not the last; at one offset it is 0."""
    found = result("kernel", dict.fromkeys(COLUMNS, (1, 1, 13)))
    found.params.update(skip=SKIP, query=QUERY, source="mean")
    for name in ("kernel", "kernel_low"):
        found.values[name][0, 0, 5] = 0
    return found.select(layer=0, head=0)


@pytest.mark.parametrize("log_y", [False, True])
@pytest.mark.parametrize("log_x", [False, True])
def test_a_kernel_with_its_spread_and_the_observed_attention(head, log_x, log_y):
    """The query first; a point lies at offset + 1 on a log axis, and a zero at the floor."""
    figure = head_curve(head, QUERY, log_x=log_x, log_y=log_y)
    turned = {name: head.values[name][SKIP : QUERY + 1][::-1] for name in COLUMNS}
    low, high, mean, observed = figure.data

    for name, trace in zip(COLUMNS, (mean, low, high, observed), strict=True):
        check_curve(trace, OFFSET + log_x, np.maximum(turned[name], FLOOR * log_y))
    np.testing.assert_array_equal(np.stack([OFFSET, *turned.values()], axis=-1), mean.customdata)
    if log_x:
        assert ((1, 2, 3, 6), ("0", "1", "2", "5")) == (
            figure.layout.xaxis.tickvals, figure.layout.xaxis.ticktext
        )  # fmt: skip


def test_without_an_observation(head):
    text = head_curve(head, QUERY)
    head.params["source"] = "text"
    assert 2 == len(head_curve(head, QUERY).data)
    del head.values["observed"]
    assert len(text.data) - 3 == len(head_curve(head, QUERY).data)


def test_mean_attention_by_offset():
    head = result("profile", {"profile": (1, 1, 13)}).select(layer=0, head=0)
    low, high, mean = profile_figure(head, most=6).data
    expected = head.values["profile"][:7]

    check_curve(mean, y=expected)
    np.testing.assert_allclose(np.outer([0.9, 1.1], expected), [low.y, high.y])
