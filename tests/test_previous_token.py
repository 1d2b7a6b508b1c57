"""Previous-token heads: raw scores, repeated tokens and kinds, on random and constructed models."""

import math

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.analyses.previous_token.formulas import contrasts
from poskernel_core.analyses.previous_token.spec import PreviousToken, PreviousTokenParams
from poskernel_core.common.specs import BAND, CorpusSpec, ModelSpec, RunSpec
from poskernel_core.data.made import doubled
from tests import builders, oracles
from tests import oracles_positions as op
from tests.truth import truth_of

TEXTS, CONTEXT, T = 3, 31, 37

NAMES = ("gpt2", "gpt_neo", "llama")

SCALES = {"gpt2": 7**-0.5, "gpt_neo": 1.0, "llama": 10**-0.5}

STARTS = pytest.mark.parametrize("start", [False, True])


def gather(path, windows, start_token, what=("keys", "patterns", "scores"), batch=None):
    """A pass of the statistics of previous-token heads."""
    return pk.run_pass(
        pk.load(str(path), device="cpu"),
        windows,
        positions=(windows.shape[1] - 1,),
        start_token=start_token,
        gather=what,
        batch=batch,
    )


def ranked(path, windows, start_token=True, **params):
    """The analysis over windows; doubled tokens as the canonical run has them."""
    params = PreviousTokenParams(**params)
    twice = doubled(windows, params.repeat_every, first=int(start_token))
    views = {
        "main": gather(path, windows, start_token),
        "doubled": gather(path, twice, start_token, ("repeats",)),
    }
    return PreviousToken().compute(views, params, lambda done, total: None)


def error(values):
    """Standard error of a mean over texts."""
    middle = oracles.mean(values)
    squares = math.fsum((x - middle) ** 2 for x in values)
    return math.sqrt(squares / (len(values) - 1) / len(values))


def position_oracle(truth, layer, head, scale, start):
    """Mean of q_n . k_i over pairs of different texts, by offset: what content cannot reach."""
    kv = head * truth.keys[layer].shape[1] // truth.queries[layer].shape[1]
    queries, keys = truth.queries[layer][:, head], truth.keys[layer][:, kv]
    profiles = [
        op.score_profile(q.tolist(), k.tolist(), scale, BAND, start)
        for i, q in enumerate(queries)
        for j, k in enumerate(keys)
        if i != j
    ]
    return {k: oracles.mean([each[k] for each in profiles]) for k in profiles[0]}


@pytest.fixture(scope="module")
def windows():
    """Random tokens, with doubled ones among them."""
    ids = builders.random_ids(TEXTS, CONTEXT, seed=11).numpy()
    ids[:, 0] = builders.START
    return doubled(ids, 7, first=1)


@pytest.fixture(scope="module")
def truths(model_dirs, windows):
    """What plain transformers computes."""
    return {name: truth_of(model_dirs[name], windows) for name in (*NAMES, "mistral")}


@STARTS
@pytest.mark.parametrize("name", NAMES)
def test_raw_scores(model_dirs, truths, windows, name, start):
    """Profile and contrasts of every head, mask and window left aside, with errors over texts."""
    arrays = gather(model_dirs[name], windows, start, ("scores",)).arrays

    for layer in range(3):
        queries, keys = truths[name].queries[layer], truths[name].keys[layer]
        for head in range(queries.shape[1]):
            kv = head * keys.shape[1] // queries.shape[1]
            profiles = [
                op.score_profile(q[head].tolist(), k[kv].tolist(), SCALES[name], BAND, int(start))
                for q, k in zip(queries, keys, strict=True)
            ]
            kinks = [op.contrasts(profile) for profile in profiles]
            columns = {
                "score_profile": [
                    list(column) for column in zip(*[p.values() for p in profiles], strict=True)
                ],
                "score_contrast": [list(column) for column in zip(*kinks, strict=True)],
            }
            for value, each in columns.items():
                found = [arrays[f"{value}{end}"][layer, head] for end in ("", "_error")]
                expected = [[oracles.mean(c) for c in each], [error(c) for c in each]]
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)
            np.testing.assert_allclose(
                arrays["mean_queries"][layer, head], queries[:, head].mean(axis=0), atol=1e-4
            )


@STARTS
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_values_against_the_oracles(model_dirs, truths, windows, name, start):
    """The two largest diagonals, their ratio, and the parts of the score profile."""
    result = ranked(model_dirs[name], windows, start)
    values = result.values

    heads = truths[name].attentions[0].shape[1]
    offsets = np.zeros((3, heads))
    for layer, head in np.ndindex(3, heads):
        patterns = truths[name].attentions[layer][:, head].tolist()
        profile = oracles.diagonal_profile(patterns, int(start))
        (first, mass), (second, less), ratio = op.largest_two(profile[: CONTEXT // 2 + 1])
        found = [values[v][layer, head] for v in ("largest_offset", "second_offset")]
        assert [first, second] == found
        offsets[layer, head] = first
        expected = {
            "largest_mass": mass, "second_mass": less, "ratio": ratio, "previous_mass": profile[1],
        }  # fmt: skip
        for value, number in expected.items():
            assert number == pytest.approx(float(values[value][layer, head]), abs=1e-5), value
        each = [oracles.diagonal_profile([text], int(start)) for text in patterns]
        for value, k in (("largest_mass", first), ("second_mass", second), ("previous_mass", 1)):
            found = float(result.errors[value][layer, head])
            assert error([profile[k] for profile in each]) == pytest.approx(found, abs=1e-5)
        position = position_oracle(truths[name], layer, head, SCALES[name], int(start))
        np.testing.assert_allclose(
            values["position_profile"][layer, head], list(position.values()), atol=1e-4
        )
        advantage = position[1] - position[0]
        assert advantage == pytest.approx(values["position_advantage"][layer, head], abs=1e-4)
    np.testing.assert_allclose(
        values["position_profile"] + values["content_profile"], values["score_profile"], atol=1e-9
    )
    whole = values["score_profile"][..., BAND + 1] - values["score_profile"][..., BAND]
    parts = values["position_advantage"] + values["content_advantage"]
    np.testing.assert_allclose(parts, whole, atol=1e-9)
    assert (offsets == 1).mean() == pytest.approx(float(values["share_previous"]))
    kinks = np.stack(contrasts(values["score_profile"]))
    found = np.stack([values["self_contrast"], values["previous_contrast"]])
    np.testing.assert_allclose(found, kinks, atol=1e-4)


def test_needs():
    """The pass over doubled tokens is small, and another spacing is another pass."""
    run = RunSpec(
        model=ModelSpec(name="m", fingerprint="f"),
        corpus=CorpusSpec(name="c", fingerprint="g"),
        context=CONTEXT,
        positions=(3,),
    )
    needs = PreviousToken().needs(run, PreviousTokenParams())

    assert run == needs["main"]
    assert (100, 8, ("repeats",)) == (
        needs["doubled"].windows, needs["doubled"].repeat_every, needs["doubled"].gather,
    )  # fmt: skip
    other = PreviousToken().needs(run, PreviousTokenParams(repeat_every=5))
    assert needs["doubled"].key() != other["doubled"].key()
