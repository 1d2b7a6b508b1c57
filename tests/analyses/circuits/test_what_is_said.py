"""What is said of circuits: numbers, as far as their intervals allow."""

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.circuits.spec import INPUTS, KEPT
from poskernel_core.analyses.circuits.views import SIDES, label_sides, no_difference
from poskernel_core.analyses.views import figure_of, finding_of
from tests.support.made_findings import check, made

EDGES = {
    "edge": np.array([[[0.1, 0.0], [0.0, 0.6], [-0.2, 0.0]]]),
    "estimate": np.array([[[0.1, 0.0], [0.0, 0.3], [-0.2, 0.0]]]),
    "whole": np.array([[0.1, 0.7, -0.2]]),
    "nonlinear": np.array([[0.0, 0.1, 0.0]]),
    "carried": np.array([[0.2, 0.5], [0.6, np.nan]]),
}
TEXTS = {"receiver": ["L1H0"], "input": [*INPUTS], "sender": ["embeddings", "L0H1"]}


def edges(error=0.01, **changes):
    values = EDGES | changes
    errors = {name: np.full(value.shape, error) for name, value in values.items()}
    return made("edges", values, errors, texts=TEXTS)


def curves(recovered, k80=(2, 2, 3), error=0.01, difference=3.0):
    values = {
        "recovered": [recovered, [0, 0.1, 0.3, 0.4]], "content": [0, 0.2, 0.5, 0.6],
        "k80": [k80[0], np.nan], "difference": difference,
    }  # fmt: skip
    low, high = ({"k80": np.array([end, np.nan])} for end in k80[1:])
    values = {name: np.array(value, float) for name, value in values.items()}
    errors = {name: np.full(values[name].shape, error)
              for name in ("recovered", "content", "difference")}  # fmt: skip
    return made("faithfulness", values, errors, texts={"curve": [KEPT, "random"]},
                coordinates={"first": np.array([0, 1, 2, 7])}, lows=low, highs=high)  # fmt: skip


def test_the_largest_edge_is_named():
    """The whole answer, and the part about its one receiver, say the same."""
    words = "The largest edge leads from L0H1 to the key of L1H0: 0.60 of the difference"
    check(finding_of(edges()), words)
    check(finding_of(edges().select(receiver=0)), words)
    near = EDGES["edge"].copy()
    near[0, 0, 0] = 0.55
    check(finding_of(edges(0.1, edge=near)), "not to be told from 1 other")
    assert "" == finding_of(edges(9.0))


def test_a_small_edge_that_is_sure_is_not_the_largest():
    one = edges()
    errors = one.errors["edge"].copy()
    errors[0, 1, 1] = 9.0
    assert "" == finding_of(replace(one, errors={**one.errors, "edge": errors}))


def test_estimates_are_said_to_be_some():
    unknown = {name: np.nan * EDGES[name] for name in ("edge", "whole", "nonlinear")}
    check(finding_of(edges(**unknown)), "To first order, the largest edge leads from L0H1")


def test_how_many_heads_are_enough():
    found = finding_of(curves([0, 0.4, 0.85, 1]))
    check(found, "2 of 7 heads recover 0.8 of the behaviour (2 to 3 without one group of pairs)")
    check(found, "0.50 of it is lost if they attend by their kernels alone")
    assert "without" not in finding_of(curves([0, 0.4, 0.85, 1], (2, 2, 2)))
    assert "" == finding_of(curves([0, 0.4, 0.85, 1], error=9.0))
    assert "" == finding_of(curves([0, 0.4, 0.85, 1], (np.nan, 2, 3)))


def test_fewer_heads_that_recover_more_than_some_after_them():
    """Those that the figure shows above, on their way to the number that is enough for good."""
    all_of_them = (7, 7, 7)
    found = finding_of(curves([0, 0.95, 0.7, 1], all_of_them))
    check(found, "7 of 7 heads recover 0.8 of the behaviour for good: the first alone recovers")
    check(found, "before others work against it; 0.60 of it is lost")
    for unclear in ([0, 0.81, 0.7, 1], [0, 0.75, 0.7, 1], [0, 0.95, 0.79, 1]):
        assert "for good" not in finding_of(curves(unclear, all_of_them))


def test_a_difference_that_is_not_clear():
    assert "" == no_difference(curves([0, 0.4, 0.85, 1]))
    check(no_difference(curves([0, 0.4, 0.85, 1], difference=0.49)), "The metric differs by 0.49")
    assert "" == no_difference(curves([0, 0.4, 0.85, 1], error=np.nan))


def test_labels_stand_apart():
    """Of neighbours in a row the second is below, or beside it where another label is below."""
    above, below, right, _left = SIDES
    row = [(8.0, 2), (9.0, 2), (20.0, 2)]
    labels = ["L8H2", "L9H2", "L20H2"]
    assert [above, below, above] == label_sides(labels, row, 30, 9)
    assert [above] * 3 == label_sides(labels, [(0.0, 2), (1.0, 2), (2.0, 2)], 3, 9)
    column = [(9.0, 2), (9.0, 4), (9.0, 3)]
    assert [above, below, right] == label_sides(labels, column, 30, 32)


def test_pictures():
    """Lines lead from sender to receiver, the widest for the largest edge; no line for a zero."""
    figure = figure_of(edges())
    lines = [trace for trace in figure.data if trace.mode == "lines" and trace.x[0] is not None]
    assert ["value", "query", "key"] != [trace.name for trace in lines]
    assert {"query", "key", "value"} == {trace.name for trace in lines}
    widest = max(lines, key=lambda trace: trace.line.width)
    assert ("key", (0, 1), (1, 0)) == (
        widest.name, (widest.x[0], widest.y[0]), (widest.x[-1], widest.y[-1]),
    )  # fmt: skip
    assert {"value"} == {trace.name for trace in lines if trace.line.dash == "dot"}
    clicked = {name for trace in figure.data if trace.customdata is not None
               for name in trace.customdata}  # fmt: skip
    assert {"L0H0", "L0H1", "L1H0", "embeddings"} == clicked
    bars = figure_of(edges().select(receiver=0))
    assert ["into its query", "into its key", "into its value"] == [each.name for each in bars.data]
    key = bars.data[1]
    assert ("L0H1", "embeddings", "all together", "not linear") == key.y
    np.testing.assert_allclose(key.x, [0.6, 0, 0.7, 0.1])
    assert isinstance(key, go.Bar)
