"""Errors and biases of analyses against loops that leave out one group of texts after the other."""

import math
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.analyses import find
from poskernel_core.analyses.kernels.etc import EtcHeatMap
from poskernel_core.common.errors import BadRequest, Cancelled
from poskernel_core.common.heads import head_name
from tests.support import builders, oracles
from tests.support import oracles_groups as groups
from tests.support import oracles_positions as op
from tests.support.builders.families import FAMILY_MODELS
from tests.support.passes import loaded
from tests.support.refusals import refused

CONTEXT, SKIP, N = 23, 2, 19
POSITIONS = (0, 7, 13, N)
# windows asked and read, texts of each group whose queries are kept
SIZES = {"groups of two": (23, 20, 2), "groups of three": (30, 30, 2), "one a group": (7, 7, 1)}
MODELS = {
    "gpt2": [(0, 0), (2, 3)],
    "mistral": [(1, 4)],  # window, shared keys
    "gemma2": [(0, 1), (1, 2)],  # soft cap, window, shared keys
    "bloom": [(1, 2)],  # ALiBi
}
GATHER = ("keys", "queries", "patterns", "scores", "repeats", "entropy", "sinks", "headvis")
EACH = pytest.mark.parametrize(
    ("name", "size"),
    [*((name, "groups of two") for name in MODELS), ("gpt2", "groups of three"),
     ("gemma2", "one a group")],
)  # fmt: skip


@pytest.fixture(scope="module")
def made(model_dirs, tmp_path_factory):
    """A pass of a model, and its heads as the oracle reads them; made when first asked for."""
    root, kept = tmp_path_factory.mktemp("families"), {}

    def one(name, size):
        if (name, size) not in kept:
            path = model_dirs.get(name) or FAMILY_MODELS[name].build(root / f"{name} {size}")
            model, (asked, read, sampled) = loaded(path), SIZES[size]
            windows = builders.random_ids(asked, CONTEXT, seed=17).numpy() % 31 + 1
            gathered = pk.run_pass(
                model, windows, positions=POSITIONS,
                queries_per_position=sampled * min(10, asked), gather=GATHER,
            )  # fmt: skip
            kept[name, size] = gathered, groups.heads_of(model, windows[:read], sampled)
        return kept[name, size]

    return one


def compare(found, at, numbers, exactly, value, gaps=None):
    """A value, its error and its bias: to a thousandth of the error, and as kept to 1e-6.

    `numbers` of all texts and without each group; `exactly` the same of means as they are kept;
    `gaps` the rows of a distance.
    """
    scale = np.nanmax(np.abs(numbers[0]))
    row = value not in found.plug_ins  # which is not corrected
    error, bias = groups.error_and_bias(numbers)
    bias = groups.half_of_what_is_lost(gaps) if gaps else bias
    if not row:
        low, middle, high = (p[value][at] for p in (found.lows, found.values, found.highs))
        assert low <= middle <= high or np.isnan(middle)
        kind = {each.name: each.kind for each in find(found.analysis).values}[value]
        if kind in ("smooth", "log"):  # the mean of the pseudo-values, here in full
            scaled = np.log(numbers) if kind == "log" else np.asarray(numbers)
            mean = len(scaled[1:]) * scaled[0] - (len(scaled) - 2) * scaled[1:].mean()
            shown = math.exp(mean) if kind == "log" else mean
            near = 0.01 * shown if kind == "log" else 1e-2 * error + 1e-4 * scale
            ends = {"local_mass": (0, 1), "half_mass_distance": (0, math.inf)}
            if value == "etc":
                ends["etc"] = 1, found.values["visible_keys"][at]
            assert np.clip(shown, *ends.get(value, (-math.inf, math.inf))) == pytest.approx(
                middle, abs=near
            )
    whole = found.values if row else found.plug_ins
    have = whole[value][at], found.errors[value][at], bias if row else found.biases[value][at]
    same = {"rtol": 0, "err_msg": value}
    np.testing.assert_allclose(have[0], numbers[0], atol=2e-6 * scale, **same)
    least = 1e-3 * np.nanmax(error) + 2e-5 * scale
    np.testing.assert_allclose(have[1], error, atol=least, **same)
    np.testing.assert_allclose(have[2], bias, atol=10 * least, **same)
    if exactly is not None:
        error, bias = groups.error_and_bias(exactly)
        np.testing.assert_allclose(have[1], error, atol=2e-6 * scale, **same)
        if not gaps:
            np.testing.assert_allclose(have[2], bias, atol=2e-5 * scale, **same)


def both(head, number):
    """A number of all texts and without each group, of exact means and of means as kept."""
    each = groups.choices(head.groups)
    return tuple([number(replace(head, kept=kept), one) for one in each] for kept in (False, True))


@EACH
def test_heat_map(made, name, size):
    gathered, heads = made(name, size)
    found = pk.analyse("etc", gathered, skip=SKIP, local_tokens=3)

    assert ("stretches", min(10, SIZES[size][0])) == tuple(
        found.provenance[each] for each in ("errors", "groups")
    )
    for at in MODELS[name]:
        for place, n in ((1, 7), (3, N)):
            exact, kept = both(
                heads[at], lambda head, one, n=n: head.kernel_numbers(one, n, SKIP, POSITIONS)
            )
            for value in exact[0]:
                numbers = ([each[value] for each in one] for one in (exact, kept))
                gaps = [heads[at].gap(one, n, SKIP) for one in groups.choices(heads[at].groups)]
                compared = gaps if value == "attention_distance" else None
                compare(found, (*at, place), *numbers, value, compared)
            row, seen = heads[at].mean_kernel(heads[at].groups, n, SKIP), heads[at].visible(n, SKIP)
            assert len(seen) == found.values["visible_keys"][(*at, place)]
            kind = oracles.kind(row, n, SKIP, heads[at].call.window, tokens=3)
            assert kind == found.text_of("kind")[at[0]][at[1]][place]
        assert np.isnan(found.errors["etc"][(*at, 0)])  # sees no key
    assert not {"kind", "visible_keys"} & found.errors.keys()


@EACH
def test_kernel(made, name, size):
    gathered, heads = made(name, size)
    found = pk.analyse("kernel", gathered, skip=SKIP, query=N)
    by_offset = pk.analyse("kernel-replicates", gathered, skip=SKIP, query=N)

    for at in MODELS[name]:
        exact, kept = both(heads[at], lambda head, one: head.mean_kernel(one, N, SKIP))
        compare(found, at, exact, kept, "kernel")
        seen = heads[at].visible(N, SKIP)

        def observed(head, one, seen=seen):
            row = np.zeros(CONTEXT)
            row[seen] = head.mean(head.rows, one)[N][seen]
            return row / row.sum()

        compare(found, at, *both(heads[at], observed), "observed")
        rows = [row for group in heads[at].kernels(heads[at].groups, N, SKIP) for row in group]
        spread = np.stack([found.values[f"kernel_{end}"][at] for end in ("low", "high")])
        np.testing.assert_allclose(spread, np.percentile(rows, (10, 90), axis=0), atol=1e-6)
        for group, row in enumerate(kept[1:]):
            turned = by_offset.values["replicate"][group][at]
            np.testing.assert_allclose(turned[: len(seen)], np.array(row)[seen][::-1], atol=1e-6)
            assert np.isnan(turned[len(seen) :]).all()
        compare(
            by_offset,
            (*at, slice(len(seen))),
            *([np.array(row)[seen][::-1] for row in rows] for rows in (exact, kept)),
            "kernel",
        )


@EACH
def test_kernel_map(made, name, size):
    """A row for each recorded position; what a position does not see is blank."""
    gathered, heads = made(name, size)
    for at in MODELS[name]:
        found = pk.analyse("kernel-map", gathered, skip=SKIP, head=head_name(*at)).values
        for place, n in enumerate(POSITIONS):
            seen = heads[at].visible(n, SKIP)
            for each in ("kernel", "observed"):
                assert seen == np.flatnonzero(np.isfinite(found[each][place])).tolist()
            if seen:
                row = np.array(heads[at].mean_kernel(heads[at].groups, n, SKIP))
                gap = heads[at].gap(heads[at].groups, n, SKIP)
                np.testing.assert_allclose(found["kernel"][place, seen], row[seen], atol=1e-6)
                observed = found["kernel"][place, seen] - found["observed"][place, seen]
                np.testing.assert_allclose(observed, gap, atol=1e-6)


@EACH
def test_means(made, name, size):
    gathered, heads = made(name, size)
    profile = pk.analyse("profile", gathered)
    sinks, entropy = (pk.analyse(each, gathered, **more) for each, more in
                      (("sinks", {}), ("entropy", {"skip": SKIP})))  # fmt: skip

    for at in MODELS[name]:
        head = heads[at]
        compare(profile, at, *both(head, lambda head, one: head.profile(one, 1)), "profile")
        compare(sinks, at, *both(head, lambda head, one: head.sinks(one)), "alpha")
        exact, _ = both(head, lambda head, one: head.entropy(one, N, SKIP))
        compare(entropy, (*at, 3), exact, None, "entropy")
        each = [head.entropy([group], N, SKIP) for group in head.groups]
        error = np.std(each, ddof=1) / math.sqrt(len(each))
        assert error == pytest.approx(entropy.errors["entropy"][(*at, 3)], rel=1e-3)
    for result in (profile, sinks, entropy):
        for value, bias in result.biases.items():
            row = np.nanmax(result.errors[value], axis=-1, keepdims=True)  # they share a unit
            most = 1e-4 * row + 1e-5 * np.abs(result.values[value]) + 1e-9
            assert np.all(np.isnan(bias) | (np.abs(bias) <= most)), value


@pytest.mark.parametrize("size", SIZES)
def test_previous_token(made, size):
    gathered, heads = made("gpt2", size)
    question = find("previous-token")
    views = {"main": gathered, "doubled": gathered}
    found = question.answer(views, question.params(), lambda done, total: None)

    for at in MODELS["gpt2"]:
        head = heads[at]
        scores = {
            (n, i): op.score_profile(head.queries[n].tolist(), head.keys[i].tolist(),
                                     head.call.scale, 2, 1)
            for n in range(len(head.rows)) for i in range(len(head.rows))
        }  # fmt: skip

        def number(head, one, scores=scores):
            texts = [text for group in one for text in group]
            mass = op.largest_two(head.profile(one, 1).tolist()[: CONTEXT // 2 + 1])
            whole, position = (
                {k: oracles.mean([scores[pair][k] for pair in pairs]) for k in range(-2, 3)}
                for pairs in ([(n, n) for n in texts],
                              [(n, i) for n in texts for i in texts if n != i])
            )  # fmt: skip
            own, previous = op.contrasts(whole)
            return {
                "largest_mass": mass[0][1], "second_mass": mass[1][1], "ratio": mass[2],
                "self_contrast": own, "previous_contrast": previous,
                "position_advantage": position[1] - position[0],
                "content_advantage": whole[1] - whole[0] - position[1] + position[0],
            }  # fmt: skip

        exact = [number(head, one) for one in groups.choices(head.groups)]
        for value in exact[0]:
            compare(found, at, [each[value] for each in exact], None, value)


def test_one_text_has_no_errors(model_dirs):
    model = loaded(model_dirs["gpt2"])
    one = builders.random_ids(1, CONTEXT, seed=3).numpy()
    gathered = pk.run_pass(model, one, positions=(N,), gather=GATHER)

    for name in ("etc", "profile", "sinks", "entropy", "headvis", "kernel-distances"):
        found = pk.analyse(name, gathered, **({"query": N} if name.startswith("kernel") else {}))
        assert "nothing" == found.provenance["errors"]
        assert "groups" not in found.provenance
        assert found.errors
        for part in (found.errors, found.biases, found.lows, found.highs):
            for value, array in part.items():
                assert np.isnan(array).all(), value
                assert array.shape == found.values[value].shape
        bounds = {each.name: each.bounds for each in find(name).values}
        for value, array in found.plug_ins.items():
            np.testing.assert_array_equal(np.clip(array, *bounds[value]), found.values[value])


class Slow(EtcHeatMap):
    """An analysis whose every layer takes a while, or fails; it tells which threads it ran in."""

    def __init__(self, layers, fails=()):
        self.layers, self.fails, self.calls, self.threads = layers, fails, [], set()
        self.steps = 0

    def compute(self, statistics, params, progress):
        """Count layers, as if each took long."""
        header = statistics["main"].header
        self.calls.append((header.windows, header.groups, statistics["other"].header.windows))
        self.threads.add(threading.current_thread())
        for layer in range(self.layers):
            if self.fails:
                raise BadRequest(self.fails)
            time.sleep(0.02)
            self.steps += 1
            progress(layer + 1, self.layers)
        return self.result(params, {})


def views_of(made):
    """Statistics of ten groups, and others of seven."""
    return {"main": made("gpt2", "groups of three")[0], "other": made("gemma2", "one a group")[0]}


def test_what_is_left_out(made):
    slow = Slow(1)
    told = []
    found = slow.answer(views_of(made), slow.params(), lambda *steps: told.append(steps))

    assert [(27, 9, 7)] * 10 + [(30, 10, 7)] == sorted(slow.calls)
    assert ("stretches", 10) == (found.provenance["errors"], found.provenance["groups"])
    assert told == sorted(told)
    assert (11, 11) == told[-1]
    views = views_of(made)
    slow.answer({"main": views["other"], "other": views["main"]}, slow.params(), lambda *_: None)
    assert [(6, 6, 30)] * 7 + [(7, 7, 30)] == sorted(slow.calls[11:])


def test_a_cancel_ends_it_soon(made):
    slow = Slow(10_000)

    def cancel(done, total):
        assert (0, 11) == (done, total)
        raise Cancelled("Cancelled.")

    with pytest.raises(Cancelled):
        slow.answer(views_of(made), slow.params(), cancel)

    assert 2 == len(slow.calls)
    assert slow.steps < 500  # of 20,000: five seconds each
    assert not any(thread.is_alive() for thread in slow.threads)


def test_what_an_analysis_refuses_reaches_the_caller(made):
    slow = Slow(1, fails="Expected another number.")
    with refused(r"^Expected another number\.$"):
        slow.answer(views_of(made), slow.params(), lambda *_: None)
    assert not any(thread.is_alive() for thread in slow.threads)


def test_nothing_is_computed_again_where_nothing_has_errors(made):
    result = pk.analyse("kernel-map", made("gpt2", "groups of two")[0], skip=SKIP)
    assert {} == result.errors == result.biases
    assert "errors" not in result.provenance


def test_layers_without_heads(made):
    """They have no errors; a rate is one of the heads that there are."""
    gathered = made("lfm2", "groups of two")[0]
    result = pk.analyse("etc", gathered, skip=SKIP)
    for numbers in (result.errors["etc"], result.biases["etc"]):
        assert np.isnan(numbers[[0, 2]]).all()
        assert np.isfinite(numbers[1, :, 1:]).all()
    middle = float(np.nanmedian(pk.analyse("sinks", gathered).values["sink"]))
    sinks = pk.analyse("sinks", gathered, threshold=middle)
    assert 0.5 == sinks.values["sink_rate"]
