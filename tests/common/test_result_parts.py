"""Results joined along a new axis, and refused where they are unlike; their texts and biases."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses import find
from poskernel_core.analyses.replicates import errors_and_biases
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import NUMBERS, Result, Value, errors_together
from poskernel_core.common.rounding import texts_of
from poskernel_core.engine.provenance import from_entry, to_entry
from poskernel_core.export.files import to_csv
from poskernel_core.storage.encoding import decode, encode


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


WORDS = [[" a", "b\0", "c"], ["\n", "", "\N{SNOWMAN}"]]
GROUP = Value("words", ("layer", "rank"), "token", "")


@pytest.fixture
def result():
    value = np.arange(10.0).reshape(2, 5)
    axes, units = {"p": ("layer", "candidate")}, {"p": "share"}
    return Result("made", {}, {"p": value}, axes, units).with_text(GROUP, WORDS)


def test_bytes_of_the_store(result):
    again = from_entry(decode(encode("key", *to_entry(result)), "key"))
    assert WORDS == again.texts["words"].tolist() == again.as_json()["texts"]["words"]
    assert (GROUP.axes, GROUP.unit) == (again.axes["words"], again.units["words"])


def test_biases_in_the_store(result):
    biased = replace(result, biases={"p": np.arange(10.0).reshape(2, 5) / 7})
    header, arrays = to_entry(biased)
    again = from_entry(decode(encode("key", header, arrays), "key"))
    before = from_entry((header, {n: a for n, a in arrays.items() if n != "biases/p"}))

    np.testing.assert_array_equal(biased.biases["p"], again.biases["p"])
    assert {} == before.biases
    np.testing.assert_array_equal(result.values["p"], before.values["p"])


def test_ranges_of_replicates():
    """A place is what all texts say, with the smallest and largest number without one group."""
    question = find("previous-token")
    whole = {"largest_offset": np.array([[3, 1]])}
    kept = [{"largest_offset": np.array([[1, 1]])}, {"largest_offset": np.array([[5, 1]])}]
    errors, biases = errors_and_biases(question.values, whole, kept)
    made = question.result(question.params(), whole, errors, biases)
    for one in (made, from_entry(decode(encode("key", *to_entry(made)), "key"))):
        assert not one.errors.keys() | one.biases.keys()
        parts = [part["largest_offset"].tolist() for part in (one.lows, one.values, one.highs)]
        assert [[[1, 1]], [[3, 1]], [[5, 1]]] == parts
        assert [["3 (1 to 5)", "1"]] == texts_of(one, "largest_offset").tolist()


def test_what_was_stored_as_an_estimate():
    """The share of noise is a share, and no estimate: as it is declared now, so it is read."""
    sources = find("position-sources")
    noise, position = np.array([[-0.02, 1.11, np.nan]]), np.array([[0.9, 0.4, 0.2]])
    axes, units = {"noise": ("layer", "head")}, {"noise": "share of Var(a)"}
    stored = Result(
        sources.name, {}, {"noise": noise, "position_share": position},
        axes | {"position_share": ("layer", "head")}, units | {"position_share": "share"},
        {"noise": noise, "position_share": position}, {"noise": noise, "position_share": position},
    )  # fmt: skip
    again = from_entry(to_entry(stored))
    assert [[0, 1, None]] == again.text_of("noise")
    assert {"position_share"} == again.errors.keys() == again.biases.keys()

    made = sources.result(sources.params(), {"noise": noise, "position_share": position})
    assert [[0, 1, None]] == made.text_of("noise")
    with pytest.raises(ValueError, match="not with errors"):
        sources.result(sources.params(), {"noise": noise}, {"noise": noise})


def test_selection(result):
    one = result.select(layer=1)

    assert (WORDS[1], ("rank",)) == (one.words("words"), one.axes["words"])
    assert (WORDS, WORDS[1]) == (result.text_of("words"), one.text_of("words"))
    with pytest.raises(BadRequest, match="'word' in 'made': expected one of p, words"):
        result.text_of("word")
    assert [] == result.words("tokens")
    with pytest.raises(Exception, match="has no rank to choose"):
        result.select(rank=0)
    assert {} == result.only("p").texts
    named = result.with_text(Value("names", ("candidate",), "name", ""), list("abcde")).only("p")
    assert (["names"], {"p", "names"}) == (list(named.texts), named.axes.keys())
    assert "d" == named.select(candidate=3).texts["names"]


def test_wrong_axes(result):
    with pytest.raises(ValueError, match=r"words: axes \('layer', 'rank'\) for shape \(2,\)"):
        result.with_text(GROUP, ["a", "b"])
    with pytest.raises(ValueError, match="does not declare"):
        type(find("etc")).result(find("etc").params(), {}, texts={"nothing": []})


def test_columns_of_a_table(result):
    named = result.with_text(Value("names", ("layer",), "name", ""), ["one", "two, #"])
    lines = [line for line in to_csv(named).splitlines() if not line.startswith("#")]
    assert '"layer","candidate","p (share)","names"' == lines[0]
    assert ['0,4,4.0,"one"', '1,0,5.0,"two, #"'] == lines[5:7]


def test_what_holds_no_result():
    assert from_entry(({"analysis": "etc", "provenance": {}}, {})) is None
    assert from_entry(({}, {})) is None
