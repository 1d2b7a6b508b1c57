"""Previous-token heads: raw scores, repeated tokens and kinds, on random and constructed models."""

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.analyses.previous_token import formulas
from poskernel_core.analyses.previous_token.spec import (
    PreviousToken,
    PreviousTokenParams,
    Stages,
    StagesParams,
)
from poskernel_core.common.attention import ScoreRule, Slopes
from poskernel_core.common.specs import BAND
from poskernel_core.data.made import doubled
from poskernel_core.forward import attention
from tests.support import builders, oracles
from tests.support import oracles_positions as op
from tests.support.passes import gather, loaded
from tests.support.raw import of_all_texts
from tests.support.refusals import refused
from tests.support.truth import truth_of

TEXTS, CONTEXT, T = 3, 31, 37

SCALES = {"gpt2": 7**-0.5, "gpt_neo": 1.0, "llama": 10**-0.5}


def gathered(path, windows, start_token=True, repeat_every=8):
    """The passes that the analysis stands on; doubled tokens as the canonical run has them."""
    twice = doubled(windows, repeat_every, first=int(start_token))
    return {
        "main": gather(path, windows, start_token),
        "doubled": gather(path, twice, start_token, ("repeats",)),
    }


def answered(views, **params):
    return of_all_texts(
        PreviousToken().answer(views, PreviousTokenParams(**params), lambda done, total: None)
    )


def ranked(path, windows, start_token=True):
    return answered(gathered(path, windows, start_token))


def different(texts=5, length=T, seed=3):
    """Windows of tokens that all differ, the start token first."""
    order = np.random.default_rng(seed)
    rows = [order.permutation(np.arange(1, 293))[: length - 1] for _ in range(texts)]
    return np.concatenate([np.zeros((texts, 1), np.int64), np.array(rows)], axis=1)


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


@pytest.mark.parametrize(("name", "start"), [("gpt_neo", False), ("llama", True)])
def test_raw_scores(model_dirs, truths, repeating, name, start):
    arrays = gather(model_dirs[name], repeating, start, ("scores",)).arrays

    for layer in range(3):
        queries, keys = truths[name].queries[layer], truths[name].keys[layer]
        for head in range(queries.shape[1]):
            kv = head * keys.shape[1] // queries.shape[1]
            profiles = [
                op.score_profile(q[head].tolist(), k[kv].tolist(), SCALES[name], BAND, int(start))
                for q, k in zip(queries, keys, strict=True)
            ]
            each = np.array([list(profile.values()) for profile in profiles])
            mean = arrays["score_profile"][layer, head]
            off = (arrays["score_profile.groups"] * arrays["score_profile.step"])[layer, :, head]
            np.testing.assert_allclose(mean, each.mean(axis=0), rtol=1e-4, atol=2e-4)
            np.testing.assert_allclose(mean + off, each, rtol=1e-4, atol=2e-4)
            np.testing.assert_allclose(
                arrays["mean_queries"][layer, head], queries[:, head].mean(axis=0), atol=1e-4
            )


@pytest.mark.parametrize(("name", "start"), [("gpt2", True), ("llama", False)])
def test_values_against_the_oracles(model_dirs, truths, repeating, name, start):
    result = ranked(model_dirs[name], repeating, start)
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


def test_repeated_and_unrepeated_mass(model_dirs):
    ids = different(TEXTS, CONTEXT)
    ids[0, 20] = ids[0, 19]
    views = {
        "main": gather(model_dirs["gpt2"], ids, True),
        "doubled": gather(model_dirs["gpt2"], ids, True, ("repeats",)),
    }
    result = answered(views)

    for layer, pattern in enumerate(truth_of(model_dirs["gpt2"], ids).attentions):
        for head in range(pattern.shape[1]):
            masses = [
                op.previous_mass(text[head].tolist(), each.tolist(), 1)
                for text, each in zip(pattern, ids, strict=True)
            ]
            repeated, other = result.values["repeated_mass"], result.values["unrepeated_mass"]
            assert masses[0][0] == pytest.approx(float(repeated[layer, head]), abs=1e-6)
            mean = oracles.mean([mass for _, mass in masses])
            assert mean == pytest.approx(float(other[layer, head]), abs=1e-6)
            found = float(result.errors["unrepeated_mass"][layer, head])
            assert oracles.standard_error([mass for _, mass in masses]) == pytest.approx(
                found, rel=1e-3, abs=1e-6
            )
    # without the one text that has any, nothing is known of repeated tokens
    assert np.isnan(result.errors["repeated_mass"]).all()


def test_kinds_go_by_the_error_of_the_contrast(model_dirs, repeating):
    """A contrast below so many jackknife errors counts as none, one above them as a diagonal."""
    views = gathered(model_dirs["gpt2"], repeating)
    found = {errors: answered(views, errors=errors) for errors in (0, 2, 10)}
    dark, bright = (found[0].values[f"{name}_contrast"] for name in ("self", "previous"))
    off = {name: found[0].errors[f"{name}_contrast"] for name in ("self", "previous")}

    assert 1 < len({tuple(each.values["diagonal"].flat) for each in found.values()})
    for errors, result in found.items():
        for at in np.ndindex(dark.shape):
            depth, height = -float(dark[at]), float(bright[at])
            expected = "neither"
            if depth > errors * off["self"][at] and depth >= height:
                expected = "dark main diagonal"
            elif height > errors * off["previous"][at] and height > depth:
                expected = "bright first diagonal"
            assert expected == result.text_of("diagonal")[at[0]][at[1]]


def test_errors_of_two_texts(model_dirs, repeating):
    """One text is left: scores have errors, their parts by position and by content have none."""
    result = ranked(model_dirs["gpt2"], repeating[:2])
    for value in ("self_contrast", "previous_contrast", "ratio"):
        assert (result.errors[value] > 0).all(), value
    for value in ("position_advantage", "content_advantage", "position_profile"):
        assert np.isnan(result.errors[value]).all(), value
        assert np.isfinite(result.values[value]).any(), value


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize(("heads", "shared", "length", "start"), [
    (6, 2, 71, 0), (6, 3, 33, 1), (3, 1, 7, 1), (2, 2, 2, 1), (2, 1, 1, 0),
])  # fmt: skip
def test_position_profile_is_that_of_each_offset(monkeypatch, heads, shared, length, start, rows):
    """Blocks of rows by the keys around them give what offset after offset does, to 1e-10."""
    monkeypatch.setattr(formulas, "ROWS", rows)
    draw = np.random.default_rng(7).standard_normal
    queries, keys = draw((heads, length, 5)), draw((shared, length, 5))
    slopes = Slopes(tuple(2.0 ** -np.arange(heads)))
    for rule in (
        ScoreRule(0.37), ScoreRule(0.37, slopes=slopes),
        ScoreRule(0.37, cap=1.3, slopes=Slopes(slopes.per_head, 0.37, rounded=True)),
    ):  # fmt: skip
        found = formulas.position_profile(queries, keys, rule, start)
        np.testing.assert_allclose(found, offset_by_offset(queries, keys, rule, start), atol=1e-10)


def offset_by_offset(queries, keys, rule, start):
    """The mean score of `q_n` and `m_(n-k)`, one `k` after the other."""
    q, k = queries[:, start:], keys[:, start:].repeat(len(queries) // len(keys), axis=0)
    length = q.shape[1]
    bias = None if rule.slopes is None else rule.slopes.bias(start + length)[:, start:]
    profile = np.full((len(q), 2 * BAND + 1), np.nan)
    for offset in range(-BAND, BAND + 1):
        pairs = [(n, n - offset) for n in range(length) if 0 <= n - offset < length]
        if pairs:
            late, early = (list(each) for each in zip(*pairs, strict=True))
            scores = rule.capped(rule.scale * (q[:, late] * k[:, early]).sum(axis=2))
            scores = scores if bias is None else scores + bias[:, early] - bias[:, late]
            profile[:, BAND + offset] = scores.mean(axis=1)
    return profile


@pytest.mark.parametrize(
    ("name", "block", "start"), [("gpt_neo", 5, True), ("mistral", 5, False), ("mistral", 64, True)]
)
def test_repeated_tokens(model_dirs, truths, repeating, monkeypatch, name, block, start):
    monkeypatch.setattr(attention, "BLOCK", block)
    arrays = gather(model_dirs[name], repeating, start, ("repeats",)).arrays

    for layer, pattern in enumerate(truths[name].attentions):
        for head in range(pattern.shape[1]):
            masses = [
                op.previous_mass(text[head].tolist(), ids.tolist(), int(start))
                for text, ids in zip(pattern, repeating, strict=True)
            ]
            for place, each in enumerate(zip(*[pair[::-1] for pair in masses], strict=True)):
                np.testing.assert_allclose(
                    arrays["repeats"][layer, head, place], oracles.mean(each), atol=1e-5
                )
    assert (arrays["repeat_texts"] == 1).all()


LENGTH = 23
WINDOWS = {"gpt_neo": 5, "llama": None}


@pytest.fixture(scope="module")
def window():
    return builders.random_ids(1, LENGTH, seed=7).numpy()


def stages(path, window, cell):
    view = pk.run_pass(
        loaded(path), window, positions=range(LENGTH), queries_per_position=1,
        gather=("keys", "queries"),
    )  # fmt: skip
    params = StagesParams(head=cell, text="x")
    return Stages().compute({"main": view}, params, lambda done, total: None)


@pytest.mark.parametrize("name", WINDOWS)
def test_stages_against_plain_loops(model_dirs, window, name):
    truth = truth_of(model_dirs[name], window)
    found = stages(model_dirs[name], window, "L1H4").values

    queries = truth.queries[1][0, 4].tolist()
    shared = truth.queries[1].shape[1] // truth.keys[1].shape[1]
    keys = truth.keys[1][0, 4 // shared].tolist()
    for n, i in np.ndindex(LENGTH, LENGTH):
        score = SCALES[name] * oracles.dot(queries[n], keys[i])
        assert score == pytest.approx(float(found["score"][n, i]), abs=1e-4)
        seen = i in oracles.visible(n, 0, WINDOWS[name])
        assert seen == bool(np.isfinite(found["masked_score"][n, i]))
        assert not seen or found["masked_score"][n, i] == found["score"][n, i]
    np.testing.assert_allclose(found["pattern"], truth.attentions[1][0, 4], atol=1e-5)


def test_what_is_outside_is_refused(model_dirs, window):
    result = stages(model_dirs["gpt2"], window, "L0H0")
    assert (LENGTH,) == result.select(query=LENGTH - 1).values["pattern"].shape
    with refused(f"expected 0 to {LENGTH - 1}"):
        result.select(query=LENGTH)
    with refused("L0H0 to L2H4"):
        stages(model_dirs["gpt2"], window, "L3H0")
