"""Results of one question joined along a new axis, and refused where they are unlike."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result, Value


def of(seed=0, heads=3, positions=5, **more):
    """A result of two values, one with errors, and a text."""
    random = np.random.default_rng(seed)
    values = {"etc": random.random((heads, positions)), "share": random.random(heads)}
    made = Result(
        "etc", {"skip": 4, "seed": seed}, values,
        {"etc": ("head", "query"), "share": ("head",)}, {"etc": "tokens", "share": "share"},
        errors={"etc": values["etc"] / 7}, coordinates={"query": np.arange(positions) * 10},
        provenance={"model": "m", "date": f"day {seed}"}, chosen={"layer": 1, "at": seed},
    )  # fmt: skip
    made = made.with_text(
        Value("names", ("head",), "name", ""), [f"{seed}{i}" for i in range(heads)]
    )
    return replace(made, **more)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=5, unique=True))
def test_what_was_joined_can_be_selected(seeds):
    """Each place of the axis holds its result, with errors, units and texts."""
    results = [of(seed) for seed in seeds]
    joined = Result.join(results, "seed", seeds)

    assert ("seed", "head", "query") == joined.axes["etc"]
    for seed, one in zip(seeds, results, strict=True):
        again = joined.select(seed=seed)
        for part in ("values", "errors", "texts", "coordinates"):
            ours, theirs = getattr(again, part), getattr(one, part)
            assert ours.keys() == theirs.keys()
            for name in ours:
                np.testing.assert_array_equal(ours[name], theirs[name])
        assert (one.axes, one.units) == (again.axes, again.units)


def test_names_and_what_differs():
    """Names become a text; of parameters and provenance what differs is listed, in order."""
    joined = Result.join([of(0), of(1)], "run", ["clean", "flat"])

    assert (["clean", "flat"], ("run",)) == (joined.words("run"), joined.axes["run"])
    assert {"skip": 4, "seed": [0, 1]} == joined.params
    assert {"model": "m", "date": ["day 0", "day 1"]} == joined.provenance
    assert {"layer": 1} == joined.chosen
    assert (2, 3, 5) == joined.errors["etc"].shape
    assert "run" not in joined.coordinates


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (of(analysis="kernel"), "the question of 'a', etc, got kernel of 'b'."),
        (of(heads=2), "the shape of 'a', "),
        (of(units={"etc": "bits", "share": "share", "names": "name"}), "the units of 'a', "),
        (of(errors={}), r"what has errors of 'a', \['etc'\], got \[\] of 'b'."),
        (of(coordinates={"query": np.arange(5)}), "the coordinates of 'a', "),
        (of().only("etc"), "the shape of 'a', "),
    ],
)
def test_unlike_results(second, sentence):
    """One sentence says what differs, and of which."""
    with pytest.raises(BadRequest, match=f"Only like results can be joined: expected {sentence}"):
        Result.join([of(), second], "run", ["a", "b"])


def test_no_axis_to_join_along():
    """An axis that is there, or was selected; no results; places that are not as many."""
    for axis in ("query", "layer"):
        with pytest.raises(BadRequest, match=f"have an axis {axis!r} already"):
            Result.join([of()], axis, ["a"])
    for results, places in (([], []), ([of()], ["a", "b"])):
        with pytest.raises(BadRequest, match="Expected a place for each result"):
            Result.join(results, "run", places)
