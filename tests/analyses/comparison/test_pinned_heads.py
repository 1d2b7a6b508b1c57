"""Pinned heads: how they are written, how far apart their kernels are, their measures."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import poskernel_core as pk
from pages.compare.pinned import measure_cell
from poskernel_core.analyses import ANALYSES, find
from poskernel_core.analyses.comparison import formulas
from poskernel_core.analyses.comparison.pins import (
    MAX_PINS,
    Pin,
    nearest_position,
    pinned_run,
    read_pins,
    write_pins,
)
from poskernel_core.analyses.comparison.views import depth_figure
from poskernel_core.analyses.measures import one_a_head
from poskernel_core.analyses.views import figure_of
from poskernel_core.cli.options import Run
from poskernel_core.cli.show import check_windows
from poskernel_core.common.errors import TooLittleText
from poskernel_core.common.result import Result
from poskernel_core.engine.engine import describe_run
from tests.support import oracles
from tests.support.made_results import result
from tests.support.refusals import refused

N, SKIP = 13, 2
TEXTS = 5
CONTEXT, WINDOWS = 48, 7
KERNELS = arrays(float, (3, 7), elements=st.floats(0.001, 1)).map(
    lambda rows: rows / rows.sum(axis=1, keepdims=True)
)
NAMES = st.text("abcXYZ019/.-_ ,;@=~%", min_size=1, max_size=12).map(str.strip).filter(bool)

pytestmark = pytest.mark.usefixtures("near_workers")


def ask(engine, name, model="demo-attn-2l", **params):
    return pk.show(name, str(model), engine=engine, context=CONTEXT, windows=WINDOWS, params=params)


@given(
    st.builds(
        Pin,
        st.sampled_from(["L0H0", "L11H3"]),
        NAMES,
        st.none() | NAMES,
        NAMES,
        st.none() | st.integers(2, 99999),
        st.integers(1, 5000),
        st.booleans(),
        st.sampled_from(["float32", "bfloat16"]),
        st.integers(0, 99),
    )
)
def test_what_is_written_is_read(pin):
    assert [pin] == read_pins(str(pin))
    other = Pin("L1H1", "gpt2")
    assert list(dict.fromkeys([pin, other])) == read_pins(write_pins([pin, other, pin]))


def test_written_by_hand():
    assert "L2H6@demo-gpt2" == str(Pin("L2H6", "demo-gpt2"))
    special = Pin("L0H1", "gpt2", "step-8", "bible", 64, start=False)
    assert "L0H1@gpt2@step-8;corpus=bible;context=64;start=false" == str(special)
    assert [Pin("L0H3"), Pin("L2H6", "demo-gpt2")] == read_pins("l0h3, L2H6@demo-gpt2,")
    assert "revision step-8, corpus bible, context 64, no start token" == special.settings


@pytest.mark.parametrize(
    "text",
    ["L0", "H0L0@gpt2", "L0H0@gpt2@a@b", "L0H0@gpt2;colour=red", "L0H0@gpt2;context=many",
     "L0H0@gpt2;start=maybe", "L0H0;context=64", "L0H0@gpt2;context", "L0H0@" + 1300 * "a"],
)  # fmt: skip
def test_a_bad_pin_is_one_sentence(text):
    with refused(r"[Pp]inned head"):
        read_pins(text)


def test_too_many_pins():
    with refused(f"up to {MAX_PINS} heads to compare, got 9"):
        read_pins(",".join(f"L0H{head}" for head in range(9)))


def test_the_run_of_a_pin():
    run = describe_run("demo-gpt2", context=64, windows=50)
    assert run == pinned_run(Pin.of("L0H0", run, 512))
    assert describe_run("demo-gpt2") == pinned_run(Pin("L3H7", "demo-gpt2"))
    assert run is pinned_run(Pin("L3H7"), run)
    for pin, words in (
        (Pin("L9H0", "demo-gpt2"), "from L0H0 to L3H7"),
        (Pin("L0H0", "no-such-model/x/y"), "no-such-model"),
        (Pin("L0H0", "demo-gpt2", context=4096), "reads 2 to 512 tokens"),
        (Pin("L0H0", "demo-gpt2", corpus="nothing"), "nothing"),
        (Pin("L0H0", "demo-gpt2", dtype="int8"), "names no run"),
        (Pin("L0H0"), "needs a model"),
    ):
        with refused(words):
            pinned_run(pin)
    assert (15, 63) == (nearest_position(run, 16), nearest_position(run, 400))


def test_distance_by_hand():
    left = np.array([0.6, 0.2, 0.2])
    right = np.array([0.5, 0.5, np.nan, np.nan])
    assert 0.25 == pytest.approx(float(formulas.distance(left, right)))
    assert 1 == formulas.distance(np.array([0.0, 0.0, 1.0]), right)
    assert np.isnan(formulas.distance(np.full(3, np.nan), right))
    both = formulas.common_offsets(left, right)
    np.testing.assert_allclose([[0.75, 0.25, 0], [0.5, 0.5, 0]], both)


@given(KERNELS)
def test_distance_is_a_metric(rows):
    a, b, c = rows
    gap = float(formulas.distance(a, b))
    assert 0 == formulas.distance(a, a)
    assert gap == formulas.distance(b, a)
    assert 0 <= gap <= 1
    assert gap <= formulas.distance(a, c) + formulas.distance(c, b) + 1e-12
    assert gap == pytest.approx(oracles.total_variation(a.tolist(), b.tolist()))
    longer = np.append(b, 0.4)
    expected = oracles.aligned_distance(a[::-1].tolist(), 6, longer[::-1].tolist(), 7, 0)
    assert expected == pytest.approx(float(formulas.distance(a, longer)))


@given(KERNELS, arrays(float, (2, 7), elements=st.floats(0, 0.01)))
def test_the_largest_error_bounds_what_small_changes_do(rows, errors):
    """Each value moved by no more than its error moves a distance by no more than the bound."""
    a, b, _ = rows
    moved = 0.5 * np.abs((a + errors[0]) - (b - errors[1])).sum()
    bound = np.sqrt(2) * formulas.largest_error(errors[0], errors[1])
    assert abs(moved - 0.5 * np.abs(a - b).sum()) <= bound + 1e-12


def test_errors_by_hand():
    """A group is left out of both at once; of unlike numbers of groups, variances add up."""
    left, folds = np.array([0.5, 0.5]), np.array([[0.4, 0.6], [0.6, 0.4]])
    right, other = np.array([0.2, 0.8]), np.array([[0.1, 0.9], [0.3, 0.7]])
    more = np.vstack([other, right])  # at distances 0.4, 0.2 and 0.3 from the left
    for theirs, error in ((other, 0.0), (more, np.hypot(0.1, 0.2 / np.sqrt(3)))):
        found = formulas.compared(left, right, folds, theirs, 2.0)
        assert (0.3, 0.3) == pytest.approx((found["values"], found["plug_ins"]))
        assert error == pytest.approx(found["errors"], abs=1e-12)
        assert 0.3 + 2 * error == pytest.approx(found["highs"])
        assert found["lows"] <= max(0.0, 0.3 - 2 * error) + 1e-12
    bound = formulas.largest_error(np.array([0.03, 0.0]), np.array([0.04, 0.01]))
    assert pytest.approx(0.03) == float(bound)


def test_apart_by_hand():
    """(5 - 3) over the root of 3² and 4²; the first against itself is 0, without errors unknown."""
    apart = formulas.apart(np.array([[3.0, 5.0], [1.0, 2.0]]), np.array([[3.0, 4.0], [np.nan, 1]]))
    np.testing.assert_allclose(apart[0], [0, 0.4])
    assert np.isnan(apart[1]).all()


def test_pins_of_two_models(engine):
    """The first run's windows are held against what is asked for; too few are refused."""
    twin = f"L0H1@demo-attn-2l;context={CONTEXT};windows={WINDOWS}"
    heads = f"L0H0,L0H1,{twin},L0H0@demo-gpt2;context=64;windows=9"
    found = ask(engine, "compare-kernels", heads=heads, query=40)
    gap, error = found.values["distance"], found.errors["distance"]
    np.testing.assert_array_equal(gap, gap.T)
    np.testing.assert_array_equal(np.diag(gap), 0)
    assert 0 == gap[1, 2] < gap[1, 3] < 1
    assert (error[[0, 0, 1], [1, 3, 3]] > 0).all()
    assert heads == ",".join(found.words("heads"))
    assert [41] * 4 == [round(each / 2) * 2 + 1 for each in found.values["position"]]
    told = {
        "model": "demo-attn-2l, demo-gpt2",
        "windows": f"{WINDOWS}, 9",
        "context": f"{CONTEXT}, 64",
    }
    assert told.items() <= found.provenance.items()
    drawn = figure_of(found.only("kernel", "position"), log_x=True).data
    assert 4 == len({each.name for each in drawn if each.customdata is not None})
    assert (4, 4) == np.shape(figure_of(found).data[0].z)
    run = Run(
        model="demo-attn-2l", revision=None, corpus="sample", corpus_item=None,
        corpus_revision=None, windows=WINDOWS, until=None, pattern_windows=None, context=CONTEXT,
        no_start_token=False, seed=0, dtype="float32", device=None, batch=None,
    )  # fmt: skip
    check_windows(found, run)
    fewer = replace(found, provenance=found.provenance | {"windows": "5, 9"})
    with refused(rf"gives 5 windows of {CONTEXT} tokens, {WINDOWS} ", TooLittleText):
        check_windows(fewer, run)
    with refused("L9H9"):
        ask(engine, "compare-kernels", heads="L9H9")


def test_measures_beside(engine):
    heads, question = "L0H1,L1H2@demo-attn-2l;context=64;windows=9", find("compare-heads")
    run = describe_run("demo-attn-2l", context=CONTEXT, windows=WINDOWS)
    parts = [*question.parts(run, question.params(heads=heads))]
    out = ",".join(part for part in parts if not part.endswith((":etc", ":entropy")))
    found = ask(engine, "compare-heads", heads=heads, query=47, leave_out=out)
    for name in ("etc", "entropy"):
        of = ask(engine, name)
        for declared in ANALYSES[name].measures:
            if declared.title in found.words("measure"):
                row = found.values["value"][found.words("measure").index(declared.title)]
                one = one_a_head(declared, of, query=47).values[declared.value]
                assert one[0, 1] == row[0], declared.title
    row = found.words("measure").index("distance to observed attention")
    gap = np.diff(found.values["value"][row])[0]
    assert found.values["z_score"][row, 1] == pytest.approx(
        gap / np.hypot(*found.errors["value"][row])
    )
    kinds = found.texts["word"][found.words("measure").index("kind of kernel")]
    assert set(kinds) <= {"local", "slow decay", "uniform"}
    with refused("Nothing is left"):
        ask(engine, "compare-heads", heads=heads, leave_out=",".join(parts))


def test_by_depth(engine):
    found = ask(engine, "depth", measure="distance to observed attention", query=47)
    table = ask(engine, "etc").select(query=47).values["attention_distance"]
    np.testing.assert_allclose(found.values["mean"], table.mean(axis=1))
    np.testing.assert_array_equal(found.values["largest"], table.max(axis=1))
    np.testing.assert_array_equal(found.values["smallest"], table.min(axis=1))
    np.testing.assert_array_equal(found.values["depth"], [0, 1])
    assert "TV distance, 0 to 1" == found.units["mean"]
    assert 6 == len(depth_figure([found, found], ["one", "two"]).data)
    with refused("is a kind"):
        ask(engine, "depth", measure="kind of kernel")


def beside(groups):
    """Entropies of two heads, 1 and 1.21 without bias, with errors 0.06 and 0.08: 2.1 of both."""
    run = describe_run("demo-attn-2l", context=CONTEXT, windows=WINDOWS)
    question, shape = find("compare-heads"), (2, 8)
    arrays = {part: {"entropy": np.full(shape, at)} for part, at in (
        ("values", 1.01), ("errors", 0.06), ("biases", 0.01))}  # fmt: skip
    for part, at in (("values", 1.19), ("errors", 0.08), ("biases", -0.02)):
        arrays[part]["entropy"][1, 2] = at
    one = Result("entropy", {}, axes={"entropy": ("layer", "head")}, units={"entropy": "nats"},
                 provenance={"model": "m", "errors": "documents", "groups": groups},
                 **arrays)  # fmt: skip
    return question.compose({"0:entropy": one}, run, question.params(heads="L0H1,L1H2"))


@pytest.mark.parametrize(("groups", "bold"), [(0, True), (50, True), (10, False)])
def test_a_difference_is_bold_beyond_its_interval(groups, bold):
    """2.1 errors are more than 1.96 or the 2.01 of fifty groups, less than the 2.26 of ten."""
    found = beside(groups)
    assert [0.01, -0.02] == found.biases["value"][0].tolist()
    assert ("documents", groups) == (found.error_counts, found.groups)
    assert ("**+2.1**" if bold else "(+2.1)") in measure_cell(found, 0, 1)


def test_kernels_with_biases():
    question = find("compare-kernels")
    run = describe_run("demo-attn-2l", context=CONTEXT, windows=WINDOWS)
    params = question.params(heads="L0H1,L1H2", query=N)
    rows = np.random.default_rng(5).random((3, 2, 8, N + 1))
    values = {"kernel": rows[0], "observed": rows[1], "replicate": np.stack([rows[0], rows[2]])}
    old = result("kernel-replicates", {}, values)
    old.errors["kernel"] = rows[1]
    new = replace(old, biases={"kernel": rows[2]}, provenance={"errors": "documents", "groups": 7})
    (name,) = question.parts(run, params)

    before, after = (question.compose({name: one}, run, params) for one in (old, new))

    assert ("queries", 0) == (before.error_counts, before.groups)
    assert ("documents", 7) == (after.error_counts, after.groups)
    assert {"distance", "etc"} == after.biases.keys()  # a row is not corrected


def test_token_counts_of_rows_that_are_shorter_or_not_known():
    rows = np.array([[0.5, 0.5, np.nan], [0.25, 0.75, 0.0], [np.nan] * 3])
    np.testing.assert_allclose(formulas.token_counts(rows), [2.0, 1.6, np.nan])
