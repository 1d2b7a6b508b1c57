"""The figures of dilution and longer contexts show the numbers that they are made of."""

import numpy as np
import pytest

from poskernel_core.analyses.dilution.views import ranking
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.rounding import brief
from tests.support.made_results import result

KEYS = np.array([11.0, 23, 37, 59, 83])


@pytest.fixture
def slopes():
    shapes = {"alpha": (2, 3), "alpha_upper": (2, 3), "etc": (2, 3, 5)}
    return result("dilution", shapes, {"visible_keys": np.tile(KEYS, (2, 1))})


@pytest.fixture
def longer():
    shapes = {"distance": (2, 3, 2, 3), "longest_distance": (2, 3), "kernel": (2, 3, 2, 3, 7),
              "loss": (2, 3, 11), "loss_change": (2, 3)}  # fmt: skip
    axes = {"factor": np.array([1, 2, 4]), "offset": np.array([0, 1, 2, 3, 5, 8, 12]),
            "position": np.arange(11) * 5 + 4}  # fmt: skip
    return result("longer-contexts", shapes, params={"length": 17},
                  texts={"scaling": ["own", "linear"]}, coordinates=axes)  # fmt: skip


def traces(figure):
    return {
        trace.name: trace for trace in figure.data if trace.name and "s.e." not in trace.name[-9:]
    }


def test_slopes(slopes):
    """The fitted lines have the slopes that their names give, and go through the middle."""
    head = slopes.select(layer=1, head=2)
    drawn = {trace.name: trace for trace in figure_of(head).data}
    np.testing.assert_array_equal(drawn["ETC ± 1 s.e."].y, head.values["etc"])
    np.testing.assert_array_equal(drawn["ETC ± 1 s.e."].x, KEYS)
    for name, label, part in (
        ("alpha", "slope", slice(5)),
        ("alpha_upper", "slope, upper half", slice(2, 5)),
    ):
        slope = float(head.values[name])
        line = drawn[f"{label} {brief(slope)}"]
        steps = np.diff(np.log(np.array(line.y))) / np.diff(np.log(KEYS[part]))
        np.testing.assert_allclose(steps, slope)
        middle = np.log(head.values["etc"][part]).mean()
        assert np.log(np.array(line.y)).mean() == pytest.approx(middle)


def test_no_line_without_a_slope(slopes):
    head = slopes.select(layer=0, head=1)
    head.values["alpha"] = head.values["alpha_upper"] = np.array(np.nan)
    assert ["all visible keys", "ETC ± 1 s.e."] == [trace.name for trace in figure_of(head).data]
    assert {"layer 0", "layer 1"} <= {trace.name for trace in figure_of(slopes).data}


def test_kernels(longer):
    """Own angles in every context, scaled ones in the longest; points lie at offset + 1."""
    head = longer.select(layer=0, head=2)
    drawn = traces(figure_of(head))
    expected = {"own angles, 1 ×": (0, 0), "own angles, 2 ×": (0, 1), "own angles, 4 ×": (0, 2),
                "linear angles, 4 ×": (1, 2)}  # fmt: skip
    assert [*expected] == [*drawn]
    for name, place in expected.items():
        np.testing.assert_array_equal(drawn[name].y, head.values["kernel"][place])
        np.testing.assert_array_equal(drawn[name].x, longer.coordinates["offset"] + 1)


def test_ranking(longer):
    """Those that change most with any angles come first; layers without heads are left out."""
    distance = longer.values["distance"][..., -1]
    distance[..., 0] = [[0.1, 0.7, np.nan], [0.3, 0.0, 0.2]]
    distance[..., 1] = [[0.0, 0.6, np.nan], [0.1, 0.9, 0.1]]
    assert [(1, 1), (0, 1), (1, 0), (1, 2), (0, 0)] == ranking(longer)
    own, linear = figure_of(longer).data
    assert ("L1H1", "L0H1", "L1H0", "L1H2", "L0H0") == own.y
    assert [0.0, 0.7, 0.3, 0.2, 0.1] == list(own.x)
    assert [0.9, 0.6, 0.1, 0.1, 0.0] == list(linear.x)
