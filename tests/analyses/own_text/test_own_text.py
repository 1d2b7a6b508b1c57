"""One text of the reader's: by plain loops, for every rule of scores, and heads that are known."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.own_text import experiment as own_run
from poskernel_core.analyses.own_text import spec
from poskernel_core.analyses.own_text.experiment import row_shares
from poskernel_core.analyses.own_text.spec import HeadOnText, OwnText, kept_around, kept_queries
from poskernel_core.common.attention import ScoreRule
from tests.support import oracles
from tests.support.builders import contextual
from tests.support.builders.contextual import CONTENT, TAU, ask, perform, some_windows, study
from tests.support.builders.families import FAMILY_MODELS
from tests.support.builders.made import VOCABULARY
from tests.support.refusals import refused
from tests.support.truth import truth_of

TEXTS, LENGTH = 5, 17
# model, skip, start token, windows and divisors of scores by layer
CASES = {
    "local layer": ("gpt_neo", 2, False, [None, 5, None], [1] * 3),
    "grouped": ("llama", 0, True, [None] * 3, [10**0.5] * 3),
    "window": ("mistral", 1, True, [7] * 3, [14**0.5] * 3),
}
SHARES = ("position_share", "content_share", "covariance_share")
OTHERS = ("gemma2", "bloom", "gpt-oss", "llama4", "gemma4", "deepseek3")
"""Soft caps, slopes, learned sinks, chunks, widths by layer, compressed keys."""
SHORT = {"corpus": "sample", "context": 23, "windows": 7}


def on_text(path, ids, start, *heads, length=LENGTH, **params):
    """Of all heads, then of each, on the first window's beginning; mean keys are those of all."""
    subject, main = study(path, ids, start)
    subject = replace(subject, windows=ids[:1, :length])
    return [
        perform(OwnText, subject, main, text="x", **params),
        *[perform(HeadOnText, subject, main, text="x", head=head, **params) for head in heads],
    ]


@pytest.mark.parametrize("case", CASES)
def test_in_plain_loops(model_dirs, case):
    """One head, row by row; the shares of all heads are those of all rows together."""
    name, skip, start, windows, divisors = CASES[case]
    ids, (layer, head), sums = some_windows(TEXTS, LENGTH + 6, start), (1, 3), np.zeros(2)
    truth = truth_of(model_dirs[name], ids)
    every, one = on_text(model_dirs[name], ids, start, "L1H3", skip=skip)
    found, queries, keys = one.values, truth.queries[layer], truth.keys[layer]
    kv = head * keys.shape[1] // queries.shape[1]
    means = keys[:, kv].mean(axis=0)

    whole = np.stack([each[0, :, :LENGTH, :LENGTH] for each in truth.attentions])
    np.testing.assert_allclose(every.values["pattern"], whole, atol=1e-5)
    np.testing.assert_allclose(found["pattern"], whole[layer, head], atol=1e-5)
    for n in range(LENGTH):
        q = queries[0, head, n].astype(float) / divisors[layer]
        seen = range(ScoreRule(1.0, windows[layer]).first_visible(n), n + 1)
        s = {i: math.fsum(q * keys[0, kv, i]) for i in seen}
        a = {i: math.fsum(q * means[i]) for i in seen}
        for name_, part in (("score", s), ("position", a)):
            row = [part.get(i, np.nan) for i in range(LENGTH)]
            np.testing.assert_allclose(found[name_][n], row, atol=1e-4)
        counted = [i for i in seen if i >= skip]
        shares = [found[share][n] for share in SHARES]
        if not counted:
            assert np.isnan([found["attention_distance"][n], *shares, *found["kernel"][n]]).all()
            continue
        kernel, attention = (oracles.softmax([part[i] for i in counted]) for part in (a, s))
        np.testing.assert_allclose(found["kernel"][n, counted], kernel, atol=1e-5)
        gap = oracles.total_variation(kernel, attention)
        assert found["attention_distance"][n] == pytest.approx(gap, abs=1e-5)
        parts = [oracles.variance([part[i] for i in counted]) for part in (a, s)]
        sums += parts
        if len(counted) > 1:
            content = oracles.variance([s[i] - a[i] for i in counted])
            expected = [parts[0] / parts[1], content / parts[1]]
            np.testing.assert_allclose(shares[:2], expected, rtol=1e-3, atol=1e-4)
            assert sum(shares) == pytest.approx(1)
        skipped = math.fsum(whole[layer, head, n, :skip])
        assert found["skipped"][n] == pytest.approx(skipped, abs=1e-5)
    share = every.values["position_share"][layer, head]
    assert share == pytest.approx(sums[0] / sums[1], rel=1e-3)
    np.testing.assert_allclose(sum(every.values[each] for each in SHARES), 1)


@pytest.mark.parametrize("name", OTHERS)
def test_every_rule_of_scores(name, tmp_path):
    path = FAMILY_MODELS[name].build(tmp_path / name)
    ids = some_windows(TEXTS, LENGTH + 6, True)
    every, one = on_text(path, ids, True, "L1H2", skip=0)
    patterns, found = every.values["pattern"], one.values
    truth = truth_of(path, ids[:1, :LENGTH])
    for layer, expected in enumerate(truth.attentions):
        np.testing.assert_allclose(patterns[layer], expected[0], atol=1e-5)
    np.testing.assert_allclose(found["position"] + found["content"], found["score"], atol=1e-5)
    weights = np.exp(np.nan_to_num(found["score"].astype(float), nan=-np.inf))
    pattern = found["pattern"] / found["pattern"].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(weights / weights.sum(axis=1, keepdims=True), pattern, atol=1e-5)
    np.testing.assert_allclose(found["pattern"], patterns[1, 2])


def test_a_positional_head_and_a_symbolic_one(tmp_path):
    """Content zero in the one, position constant in the other; in the third both are as built.

    Every token stands once at every position, so that the mean content is the same everywhere.
    """
    T = 31
    path = contextual.additive(tmp_path / "additive", CONTENT, T)
    shifts = (np.arange(VOCABULARY)[:, None] + 3 * np.arange(T)) % VOCABULARY
    shifts = np.tile(shifts, (10, 1))  # a group each
    _, *found = on_text(path, shifts, False, "L0H0", "L0H1", "L0H2", length=T, skip=1)
    symbolic, both, positional = (each.values for each in found)
    n = T - 1
    content = np.array(CONTENT)[shifts[0]] - np.mean(CONTENT)

    np.testing.assert_allclose(positional["content"][n], 0, atol=1e-4)
    np.testing.assert_allclose(positional["position_share"][2:], 1, atol=1e-4)
    np.testing.assert_allclose(positional["attention_distance"][2:], 0, atol=1e-4)
    np.testing.assert_allclose(np.ptp(symbolic["position"][n]), 0, atol=1e-4)
    np.testing.assert_allclose(symbolic["content_share"][2:], 1, atol=1e-4)
    np.testing.assert_allclose(symbolic["kernel"][n, 1:], 1 / n, atol=1e-5)
    for each in (symbolic, both):
        np.testing.assert_allclose(each["content"][n], content, atol=1e-4)
    for each in (positional, both):
        np.testing.assert_allclose(np.diff(each["position"][n]), 1 / TAU, atol=1e-4)


def test_blocks_of_a_long_text(model_dirs, monkeypatch):
    monkeypatch.setattr(own_run, "MAX_PATTERN_CELLS", 3 * 5 * 6 * 6)
    ids = some_windows(TEXTS, LENGTH, True)
    (found,) = on_text(model_dirs["gpt2"], ids, True)
    whole = truth_of(model_dirs["gpt2"], ids).attentions

    assert [0, 3, 6, 9, 12, 15] == found.coordinates["key"].tolist()
    for row, key in np.ndindex(6, 6):
        rows = range(3 * row, min(3 * row + 3, LENGTH))
        mass = [whole[2][0, 4, n, 3 * key : 3 * key + 3].sum() for n in rows]
        assert found.values["pattern"][2, 4, row, key] == pytest.approx(np.mean(mass), abs=1e-5)


def test_queries_that_are_kept_of_a_long_text(model_dirs, monkeypatch):
    ids = some_windows(TEXTS, LENGTH, True)
    _, whole = on_text(model_dirs["llama"], ids, True, "L1H5")
    subject, main = study(model_dirs["llama"], ids)
    monkeypatch.setattr(spec, "MAX_CELLS", 4 * LENGTH)
    subject = replace(subject, windows=ids[:1])
    part = perform(HeadOnText, subject, main, text="x", head="L1H5", around=9)

    assert [7, 8, 9, 10] == part.coordinates["query"].tolist()
    for name, array in part.values.items():
        np.testing.assert_allclose(array, whole.values[name][7:11], rtol=1e-5, atol=1e-6)


@given(st.integers(1, 20_000), st.data())
def test_kept_queries(length, data):
    query = data.draw(st.integers(0, length - 1))
    kept = kept_queries(length, kept_around(length, query))
    assert query in kept
    assert 0 <= kept.start
    assert kept.stop <= length
    assert len(kept) == length or len(kept) * length <= spec.MAX_CELLS < (len(kept) + 1) * length


@given(st.floats(0, 10), st.floats(0, 10), st.floats(-1, 1))
def test_shares_add_up(position, content, cosine):
    """To 1, or are not defined where no score differs from another."""
    both = 2 * cosine * math.sqrt(position * content)
    shares = row_shares(*(torch.tensor([each]).double() for each in (position, content, both)))
    if position + content + both > 1e-9:
        assert sum(shares)[0] == pytest.approx(1)
    elif position + content == 0:
        assert np.isnan(shares).all()


def test_by_way_of_the_store(tmp_path):
    """Of a model two of whose layers have no heads."""
    path, text = FAMILY_MODELS["lfm2"].build(tmp_path / "lfm2"), {"text": "the lord said"}
    found = ask(tmp_path, "own-text", path, text, **SHORT)
    head = ask(tmp_path, "own-text-head", path, {**text, "head": "L1H2"}, **SHORT)

    pattern, tokens = found.values["pattern"], len(found.words("tokens"))
    assert tokens == pattern.shape[-1] == len(head.values["score"])
    told = [found.provenance[name] for name in ("text_tokens", *SHORT)]
    assert [tokens, *SHORT.values()] == told
    np.testing.assert_allclose(head.values["pattern"], pattern[1, 2], rtol=1e-6)
    assert np.isnan(pattern[[0, 2]]).all()
    with refused("Layer 0 has no heads"):
        ask(tmp_path, "own-text-head", path, {**text, "head": "L0H0"}, **SHORT)
