"""How the anatomy of a sink is drawn."""

import numpy as np
import pytest

from poskernel_core.analyses.drawing import figure_of
from poskernel_core.analyses.sink_anatomy.figures import arrangement_rows
from poskernel_core.analyses.sink_anatomy.formulas import arrangements_of, interactions
from tests.support.made_results import result

NAMES = ("standing_first", "position_zero", "start_token", "key_effect", "query_effect")


@pytest.mark.parametrize(("scheme", "bars"), [("learned", 9), ("rotary", 5)])
def test_bars_and_table(scheme, bars):
    """A bar per effect that there is, with its error; a row per arrangement."""
    arrangements = arrangements_of(scheme)
    factors = interactions(arrangements)
    shapes = dict.fromkeys(("sink", *NAMES), (2, 3))
    shapes |= {"attention": (2, 3, len(arrangements), 2), "interaction": (2, 3, len(factors))}
    texts = {
        "arrangements": [str(each) for each in arrangements],
        "factors": factors,
        "reason": [[""] * 3] * 2,
    }
    made = result("sink-anatomy", shapes, texts=texts)
    if scheme != "learned":
        made.values["position_zero"][:] = np.nan
    head = made.select(layer=1, head=2)
    drawn = {
        name: (x, error)
        for trace in figure_of(head).data
        for name, x, error in zip(trace.y, trace.x, trace.error_x.array, strict=True)
    }
    assert bars == len(drawn)
    assert (scheme == "learned") == ("position 0" in drawn) == ("all three" in drawn)
    names = {"standing first": "standing_first", "start token": "start_token",
             "through its key": "key_effect", "through the queries": "query_effect"}  # fmt: skip
    for shown, name in names.items():
        assert drawn[shown] == (head.values[name], head.errors[name])
    at = head.values["interaction"][-1], head.errors["interaction"][-1]
    assert drawn[head.words("factors")[-1]] == at
    rows = [[*row[1:]] for row in arrangement_rows(head)]
    assert [[f"{each:.2f}" for each in pair] for pair in head.values["attention"]] == rows
    assert str(arrangements[3]) == arrangement_rows(head)[3][0]
    assert figure_of(made).data
