"""Results of one question joined along a new axis, and refused where they are unlike."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import NUMBERS, Result, Value, errors_together


def of(seed=0, heads=3, positions=5, **more):
    random = np.random.default_rng(seed)
    values = {"etc": random.random((heads, positions)), "share": random.random(heads)}
    made = Result(
        "etc", {"skip": 4, "seed": seed}, values,
        {"etc": ("head", "query"), "share": ("head",)}, {"etc": "tokens", "share": "share"},
        errors={"etc": values["etc"] / 7}, biases={"etc": values["etc"] / 11},
        plug_ins={"etc": values["etc"] * 12 / 11},
        **{part: {"etc": values["etc"] * by} for part, by in (("lows", 0.7), ("highs", 1.3))},
        coordinates={"query": np.arange(positions) * 10},
        provenance={"model": "m", "date": f"day {seed}"}, chosen={"layer": 1, "at": seed},
    )  # fmt: skip
    made = made.with_text(
        Value("names", ("head",), "name", ""), [f"{seed}{i}" for i in range(heads)]
    )
    return replace(made, **more)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=5, unique=True))
def test_what_was_joined_can_be_selected(seeds):
    results = [of(seed) for seed in seeds]
    joined = Result.join(results, "seed", seeds)

    assert ("seed", "head", "query") == joined.axes["etc"]
    for seed, one in zip(seeds, results, strict=True):
        again = joined.select(seed=seed)
        for part in (*NUMBERS, "texts", "coordinates"):
            ours, theirs = getattr(again, part), getattr(one, part)
            assert ours.keys() == theirs.keys()
            for name in ours:
                np.testing.assert_array_equal(ours[name], theirs[name])
        assert (one.axes, one.units) == (again.axes, again.units)


def test_names_and_what_differs():
    joined = Result.join([of(0), of(1)], "run", ["clean", "flat"])

    assert (["clean", "flat"], ("run",)) == (joined.words("run"), joined.axes["run"])
    assert {"skip": 4, "seed": [0, 1]} == joined.params
    assert {"model": "m", "date": ["day 0", "day 1"]} == joined.provenance
    assert {"layer": 1} == joined.chosen
    assert (2, 3, 5) == joined.errors["etc"].shape == joined.biases["etc"].shape
    assert "run" not in joined.coordinates


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (of(analysis="kernel"), "the question of 'a', etc, got kernel of 'b'."),
        (of(heads=2), "the shape of 'a', "),
        (of(units={"etc": "bits", "share": "share", "names": "name"}), "the units of 'a', "),
        (of(errors={}), r"what has a standard error of 'a', \['etc'\], got \[\] of 'b'."),
        (of(biases={}), r"what has a bias of 'a', \['etc'\], got \[\] of 'b'."),
        (of(coordinates={"query": np.arange(5)}), "the coordinates of 'a', "),
        (of().only("etc"), "the shape of 'a', "),
    ],
)
def test_unlike_results(second, sentence):
    with pytest.raises(BadRequest, match=f"Only like results can be joined: expected {sentence}"):
        Result.join([of(), second], "run", ["a", "b"])


def test_no_axis_to_join_along():
    for axis in ("query", "layer"):
        with pytest.raises(BadRequest, match=f"have an axis {axis!r} already"):
            Result.join([of()], axis, ["a"])
    for results, places in (([], []), ([of()], ["a", "b"])):
        with pytest.raises(BadRequest, match="Expected a place for each result"):
            Result.join(results, "run", places)


def test_biases_go_where_values_go():
    one = of(heads=2).with_text(Value("layer", (), "name", ""), "a")
    named = replace(
        one, axes={name: ("layer", *axes) for name, axes in one.axes.items() if name == "etc"},
        values={"etc": one.values["etc"][None]}, errors={}, texts={}, chosen={},
        lows={}, highs={}, plug_ins={},
        biases={"etc": one.biases["etc"][None]}, units={"etc": "tokens"},
    )  # fmt: skip

    np.testing.assert_array_equal(
        one.biases["etc"][1, 3], one.select(head=1, query=30).biases["etc"]
    )
    assert ({}, {"etc"}) == (one.only("share").biases, set(one.only("etc").biases))
    assert np.isnan(named.without_heads({0: "a mixer"}).biases["etc"]).all()
    assert one.biases["etc"].tolist() == one.as_json()["biases"]["etc"]


def test_a_bias_of_another_shape_or_name():
    with pytest.raises(ValueError, match=r"etc: bias of shape \(2,\)"):
        of(biases={"etc": np.zeros(2)})
    one = of()
    with pytest.raises(ValueError, match=r"etc_bias.*a bias as well"):
        replace(one, values=one.values | {"etc_bias": np.zeros(())},
                axes=one.axes | {"etc_bias": ()}, units=one.units | {"etc_bias": ""})  # fmt: skip


@pytest.mark.parametrize(
    ("told", "counts", "groups", "width"),
    [
        ({}, "", 0, 1.96),
        ({"errors": "documents", "groups": 10}, "documents", 10, 2.262157),
        ({"errors": "windows", "groups": 1}, "windows", 1, 1.96),
        ({"errors": ["documents", None], "groups": [7, None]}, "documents", 7, 2.446912),
        ({"errors": ["documents", "windows"], "groups": 10}, "documents or windows", 10, 2.262157),
        ({"errors": "windows", "groups": [10, 3]}, "windows", 3, 4.302653),
    ],
)
def test_what_errors_count(told, counts, groups, width):
    one = of(provenance=told)
    assert (counts, groups) == (one.error_counts, one.groups)
    assert width == pytest.approx(one.interval, abs=1e-6)


def test_what_errors_of_several_count():
    documents, windows = {"errors": "documents", "groups": 10}, {"errors": "windows"}
    both = {"errors": ["documents", "windows"], "groups": [10, 0]}
    assert documents == errors_together([documents, documents | {"model": "b"}])
    assert both == errors_together([documents, windows]) == errors_together([both, windows])
    assert {} == errors_together([])
