"""What results about the anatomy of sinks say, and how they are drawn."""

import numpy as np
import pytest

from poskernel_core.analyses.drawing import figure_of
from poskernel_core.analyses.sink_anatomy.figures import arrangement_rows
from poskernel_core.analyses.sink_anatomy.formulas import arrangements_of, interactions
from tests.support.made_findings import found
from tests.support.made_results import result

HEAD = {"layer": 3, "head": 2}
NAMES = ("standing_first", "position_zero", "start_token", "key_effect", "query_effect")


def said(*effects, error=0.01, sink=0.8):
    numbers = dict(zip(NAMES, ((each, error) for each in effects), strict=True))
    return found("sink-anatomy", {"sink": (sink, 0.01), **numbers}, **HEAD)


@pytest.mark.parametrize(
    ("effects", "sentence"),
    [
        ((0.3, -0.01, 0.6, 0.07, 0.8),
         "The sink of L3H2 follows what stands first (+0.30) and the start token (+0.60), not "
         "position 0 (−0.01); the start token acts through the queries after it (+0.80)."),
        ((-0.14, 0.39, 0.2, 0.2, 0.0),
         "The sink of L3H2 follows position 0 (+0.39) and the start token (+0.20), and less what "
         "stands first (−0.14); the start token acts through its key (+0.20)."),
        ((0.0, np.nan, 0.7, 0.4, 0.3),
         "The sink of L3H2 follows the start token (+0.70), not what stands first (0); the start "
         "token acts through its key (+0.40) and the queries after it (+0.30)."),
        ((0.5, 0.1, 0.0, 0.3, 0.0),
         "The sink of L3H2 follows what stands first (+0.50), not the start token (0)."),
        ((0.0, 0.0, 0.0, 0.0, 0.0), ""),
        ((0.1, 0.1, 0.1, 0.5, 0.5), ""),
    ],
)  # fmt: skip
def test_one_head(effects, sentence):
    """Certain effects are told, small ones denied, open ones left out."""
    assert sentence == said(*effects)


def test_a_head_without_a_sink():
    assert ("L3H2 has no sink: the first key gets 0.12 of its attention (limit 0.3).") == said(
        *[np.nan] * 5, error=np.nan, sink=0.12
    )
    assert "" == said(*[np.nan] * 5, error=np.nan, sink=0.29)


def test_no_head_has_a_sink():
    none = dict.fromkeys(NAMES, (np.full((1, 2), np.nan), np.nan))
    assert (
        "In none of 2 heads is the attention to the first key 0.3 or more; it is largest in L0H1 "
        "(0.20)."
    ) == found("sink-anatomy", {**none, "sink": ([[0.1, 0.2]], 0.01)})


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
