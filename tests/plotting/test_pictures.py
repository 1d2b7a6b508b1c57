"""What pictures of a result's values share: which places they draw, their ticks and titles."""

import numpy as np
import pytest

from poskernel_core.analyses.pictures import draw_lines, titled
from poskernel_core.analyses.views import figure_of
from tests.support.made_results import answer


@pytest.mark.parametrize(("x", "ticks"), [([0, 1, 2, 5], 1), ([0, 15, 31, 400], None)])
def test_a_tick_for_each_of_a_few_places(x, ticks):
    """Places that lie far apart would have hundreds."""
    rows = {"one": (np.ones(len(x)), None)}
    assert ticks == draw_lines(np.array(x), rows, over="key", unit="nats").layout.xaxis.dtick


@pytest.mark.parametrize("query", [2, 8])
def test_keys_after_the_query_are_left_out(query):
    row = answer("position-vs-token").select(layer=1, head=2, query=query).only("score")
    lines = [trace for trace in figure_of(row).data if str(trace.name).startswith("conditions")]
    assert {(*range(query + 1),)} == {tuple(line.x) for line in lines if line.showlegend is None}


def test_a_title_names_what_was_chosen():
    whole = answer("position-vs-token", length=11)
    head = whole.select(layer=1, head=2)
    assert "L1H2: at 8 of 11" == titled(head.select(query=8), "at {query} of {length}")
    assert "L1H2: conditions 2" == titled(head.select(condition=2), "{condition}")
    assert "All 11" == titled(whole, "all {length}")
