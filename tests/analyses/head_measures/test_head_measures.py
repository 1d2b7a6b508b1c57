"""Every measure of every head in one table: the same numbers as one by one, and their ranks."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.head_measures.spec import MANY, rank_range, ranks
from poskernel_core.common.result import Result
from poskernel_core.engine.engine import describe_run
from poskernel_core.passes import runner
from poskernel_core.storage.statistics import windows_of

CONTEXT, QUERY, SKIP = 48, 47, 3
NUMBERS = st.floats(-1e6, 1e6) | st.just(np.nan)
QUESTION = ANALYSES["head-measures"]


@pytest.fixture(scope="module")
def table(engine, near_workers):
    """The table of a model, and the passes that were run for it."""
    runs, gather_run = [], runner.gather_run
    params = {"query": QUERY, "skip": SKIP}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "gather_run", lambda *a: runs.append(a[1]) or gather_run(*a))
        found = pk.show(
            QUESTION.name, "demo-attn-2l", engine=engine, context=CONTEXT, windows=5, params=params
        )
    return found, runs


def asked(model, **params):
    """The questions whose measures a model's table holds."""
    run = describe_run(str(model), context=CONTEXT, windows=5)
    return set(QUESTION.parts(run, QUESTION.params(query=QUERY, skip=SKIP, **params)))


def test_ranks_by_hand():
    numbers = np.array([[0.5, 2.0, np.nan], [2.0, -1.0, 0.5]])
    np.testing.assert_array_equal(ranks(numbers), [[3, 1, np.nan], [1, 5, 3]])


@given(arrays(float, (2, 5), elements=NUMBERS))
def test_a_rank_counts_the_larger_ones(numbers):
    for number, rank in zip(numbers.ravel(), ranks(numbers).ravel(), strict=True):
        larger = sum(other > number for other in numbers.ravel())
        assert np.isnan(rank) if np.isnan(number) else rank == 1 + larger


def test_ranks_that_a_head_may_have_by_hand():
    """6 ± 1 and 5 ± 1 may change places; 5.5, of no known interval, may have any rank."""
    value = np.array([[6.0, 5.0, np.nan], [1.0, 9.0, 5.5]])
    reach = np.array([[1.0, 1.0, np.nan], [0.5, 0.5, np.nan]])
    first, last = rank_range(value, value - reach, value + reach)
    np.testing.assert_array_equal(first, [[2, 2, np.nan], [4, 1, np.nan]])
    np.testing.assert_array_equal(last, [[4, 4, np.nan], [5, 2, np.nan]])


@given(st.integers(0, 2**32 - 1))
def test_a_rank_range_counts_the_heads_that_are_told_apart(seed):
    """Held against pairs of heads, one by one, with intervals that are not symmetric."""
    random = np.random.default_rng(seed)
    value, below, above = random.choice([0.0, 0.1, 0.3, 1.0, 2.0, np.nan], (3, 2, 5))
    first, last = rank_range(value, value - below, value + above)
    heads = [(v, b, a) for v, b, a in zip(value.flat, below.flat, above.flat, strict=True)]
    known = sum(not np.isnan(v) for v, _, _ in heads)
    for place, (v, b, a) in enumerate(heads):
        if np.isnan([v, b, a]).any():
            assert np.isnan([first.flat[place], last.flat[place]]).all()
            continue
        over = sum(other - v > np.sqrt(down**2 + a**2) for other, down, _ in heads)
        under = sum(v - other > np.sqrt(b**2 + up**2) for other, _, up in heads)
        assert (1 + over, known - under) == (first.flat[place], last.flat[place])
        assert first.flat[place] <= ranks(value).flat[place] <= last.flat[place]


def test_too_many_heads_for_pairs():
    value = np.arange(MANY + 1.0)[None]
    assert all(np.isnan(each).all() for each in rank_range(value, value, value))


def test_the_table_holds_what_each_question_says(engine, table):
    found, runs = table
    assert len(runs) == len({windows_of(run) for run in runs}) == 2  # one pass gathers for all
    assert ("repeats",) in [run.gather for run in runs]
    titles = found.words("measure")
    assert len(set(titles)) == len(titles) > 8
    rows = zip(titles, *map(found.words, ("unit", "question", "named")), strict=True)
    for place, (title, unit, question, value) in enumerate(rows):
        names = ANALYSES[question].params.model_fields
        chosen = {name: at for name, at in (("query", QUERY), ("skip", SKIP)) if name in names}
        one = pk.show(
            question, "demo-attn-2l", engine=engine, context=CONTEXT, windows=5, params=chosen
        )
        if "query" in one.axes[value]:
            one = one.select(query=QUERY)
        numbers = one.values[value]
        if numbers.ndim > 2:
            numbers = numbers[..., -1]
        np.testing.assert_array_equal(found.values["value"][place], numbers, err_msg=title)
        assert one.units[value] == unit
        words = [word for word in found.texts["kinds"][place].tolist() if word]
        assert words == list(one.labels.get(value, ()))
        expected = np.full_like(found.values["rank"][place], np.nan) if words else ranks(numbers)
        np.testing.assert_array_equal(found.values["rank"][place], expected)


def test_which_questions_are_asked(rotary):
    few, more = (asked("demo-attn-2l", experiments=again) for again in (False, True))
    assert few < more
    assert "induction-scores" in more
    for some, again in ((few, False), (more - few, True)):
        assert {again} == {ANALYSES[name].on_request for name in some}
    part = asked("gpt2-small-layer0", experiments=True)
    assert "etc" in part
    assert "induction-scores" not in part
    assert "rotary-spectrum" in asked(rotary) - few


PARTS = ("values", "errors", "biases")
RUN = describe_run("demo-attn-2l", context=CONTEXT, windows=5)
TOLD = {"errors": "documents", "groups": 10}


def one_of(question, name, layers=2, heads=8, **told):
    """A made answer about all heads of the model: one value with its error and its bias."""
    random = np.random.default_rng(len(name))
    parts = {part: {name: random.random((layers, heads))} for part in PARTS}
    return Result(question, {}, axes={name: ("layer", "head")}, units={name: ""},
                  provenance={"model": "m"} | told, **parts)  # fmt: skip


@pytest.mark.parametrize("name", ["head-measures", "verdicts"])
def test_biases_and_what_errors_count(name):
    question = ANALYSES[name]
    sure = one_of("entropy", "entropy", **TOLD)
    bare = replace(one_of("induction-scores", "induction"), biases={})

    found = question.compose({"entropy": sure, "induction-scores": bare}, RUN, question.params())

    np.testing.assert_array_equal(found.biases["value"][0], sure.biases["entropy"])
    assert np.isnan(found.biases["value"][1]).all()
    np.testing.assert_array_equal(found.errors["value"][1], bare.errors["induction"])
    assert ["documents", "sequences of random tokens"] == found.provenance["errors"]
    assert [10, 0] == found.provenance["groups"]

    old = replace(one_of("entropy", "entropy"), biases={})
    found = question.compose({"entropy": old}, RUN, question.params())
    assert {} == found.biases
    assert ("windows", 0) == (found.error_counts, found.groups)
