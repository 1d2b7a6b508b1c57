"""Previous-token heads: raw scores, repeated tokens and kinds, on random and constructed models."""

import math

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.analyses.bands import contrasts
from poskernel_core.analyses.previous_token import PreviousToken, PreviousTokenParams, read_kind
from poskernel_core.config import BAND, CorpusSpec, ModelSpec, RunSpec
from poskernel_core.made import doubled
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
    """The analysis over windows; doubled tokens as the settled pass has them."""
    params = PreviousTokenParams(**params)
    twice = doubled(windows, params.doubling, first=int(start_token))
    views = {
        "main": gather(path, windows, start_token),
        "doubled": gather(path, twice, start_token, ("repeats",)),
    }
    return PreviousToken().compute(views, params, lambda done, total: None)


def different(texts=5, length=T, seed=3):
    """Windows of tokens that all differ, the start token first."""
    order = np.random.default_rng(seed)
    rows = [order.permutation(np.arange(1, 293))[: length - 1] for _ in range(texts)]
    return np.concatenate([np.zeros((texts, 1), np.int64), np.array(rows)], axis=1)


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


@pytest.fixture(scope="module")
def constructed(tmp_path_factory):
    """Directories of models whose previous-token heads work in a known way."""
    root = tmp_path_factory.mktemp("previous")
    return {
        "dark": builders.dark_head(root / "dark", T),
        "aggregator": builders.aggregator(root / "aggregator", T),
        "one back": builders.look_back(root / "one", 1, T),
        "two back": builders.look_back(root / "two", 2, T),
    }


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


def test_negative_self_attention(constructed):
    """Layer 0's head shuns its own token; repeated tokens break it; all others are uniform."""
    result = ranked(constructed["dark"], different())
    values = {name: array[0, 0] for name, array in result.values.items() if array.ndim >= 2}

    assert "negative self-attention" == result.text_of("kind")[0][0]
    assert "dark main diagonal" == result.text_of("diagonal")[0][0]
    assert (-12, 0) == pytest.approx(
        (values["self_contrast"], values["previous_contrast"]), abs=1e-2
    )
    assert 1 == values["largest_offset"]
    assert 0.950 == pytest.approx(values["largest_mass"], abs=1e-3)
    assert math.exp(-3) == pytest.approx(values["ratio"], abs=2e-3)
    assert 0.95 == pytest.approx(values["unrepeated_mass"], abs=0.01)
    assert math.exp(-9) * (1 - math.exp(-3)) == pytest.approx(values["repeated_mass"], rel=0.02)
    assert (-1.5, 12) == pytest.approx(
        (values["position_advantage"], values["content_advantage"]), abs=1e-2
    )
    assert 0.25 == float(result.values["share_previous"])
    assert [["current token"], ["current token"] * 2] == [
        result.text_of("kind")[0][1:], result.text_of("kind")[1],
    ]  # fmt: skip
    assert [["neither"], ["neither"] * 2] == [
        result.text_of("diagonal")[0][1:], result.text_of("diagonal")[1],
    ]  # fmt: skip


def test_aggregator(constructed):
    """Layer 1's head finds the code that layer 0's copied by position."""
    result = ranked(constructed["aggregator"], different())
    values = {name: array[1, 0] for name, array in result.values.items() if array.ndim >= 2}

    assert "aggregator" == result.text_of("kind")[1][0]
    assert "bright first diagonal" == result.text_of("diagonal")[1][0]
    assert (0, 12) == pytest.approx(
        (values["self_contrast"], values["previous_contrast"]), abs=1e-2
    )
    assert 1 == values["largest_offset"]
    assert values["largest_mass"] > 0.999
    assert values["ratio"] < 1e-4
    assert "by position" == result.text_of("kind")[0][0]
    assert 0.5 == float(result.values["share_previous"])


@pytest.mark.parametrize(("name", "k", "kind"), [
    ("one back", 1, "by position"), ("two back", 2, "look back"),
])  # fmt: skip
def test_look_back(constructed, name, k, kind):
    """Heads that look back by position alone, whatever the tokens."""
    result = ranked(constructed[name], builders.random_ids(5, T).numpy(), start_token=False)

    assert kind == result.text_of("kind")[0][0]
    assert k == result.values["largest_offset"][0, 0]
    assert result.values["largest_mass"][0, 0] > 0.999
    assert (k == 1) / 6 == pytest.approx(float(result.values["share_previous"]))
    np.testing.assert_allclose(result.values["content_profile"][0, 0], 0, atol=1e-2)
    assert "bright first diagonal" == result.text_of("diagonal")[0][0] or k == 2


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
        needs["doubled"].windows, needs["doubled"].doubling, needs["doubled"].gather,
    )  # fmt: skip
    other = PreviousToken().needs(run, PreviousTokenParams(doubling=5))
    assert needs["doubled"].key() != other["doubled"].key()


@pytest.mark.parametrize(("content", "least", "kind"), [
    ((-1.0, -4.0, 1.0, 2.0), 0.5, 0),  # a dip at 0
    ((-1.0, 0.0, 9.0, 2.0), 0.5, 1),  # a peak at 1
    ((-1.0, 0.0, 1.0, 2.0), 0.0, 3),  # a straight line: neither
    ((-3.0, 0.0, 0.5, 3.0), 0.0, 3),  # below the line at 1, above it at 0
    ((-1.0, -0.3, 1.1, 2.0), 0.5, 3),  # a dip within its error
])  # fmt: skip
def test_kind_wants_a_dip_or_a_peak(content, least, kind):
    """By content, a head beyond layer 0 shuns itself, or aggregates, only if its scores show it."""
    profile = np.zeros((2, 1, 2 * BAND + 1))
    profile[1, 0, BAND - 1 : BAND + 3] = content
    values = {
        "largest_offset": np.ones((2, 1), int),
        "content_profile": profile,
        "content_advantage": np.array([[0.0], [1.0]]),
        "position_advantage": np.array([[0.0], [-1.0]]),
        "ratio": np.full((2, 1), 0.3),
    }

    assert kind == read_kind(values, np.full((2, 1, 2), least), 0.9)[1, 0]
