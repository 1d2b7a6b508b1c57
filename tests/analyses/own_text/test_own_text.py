"""One text of the reader's: by plain loops, for every rule of scores, and heads that are known."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.own_text import experiment as own_run
from poskernel_core.analyses.own_text import spec
from poskernel_core.analyses.own_text.experiment import row_shares
from poskernel_core.analyses.own_text.spec import HeadOnText, OwnText, kept_around, kept_queries
from poskernel_core.common.attention import first_visible
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
    "learned": ("gpt2", 4, True, [None] * 3, [7**0.5] * 3),
    "local layer": ("gpt_neo", 2, False, [None, 5, None], [1] * 3),
    "grouped": ("llama", 0, True, [None] * 3, [10**0.5] * 3),
    "window": ("mistral", 1, True, [7] * 3, [14**0.5] * 3),
}
SHARES = ("position_share", "content_share", "covariance_share")
OTHERS = ("gemma2", "bloom", "gpt-oss", "llama4", "gemma4", "mpt", "falcon-one-key", "deepseek3")
"""Soft caps, slopes, learned sinks, chunks, widths by layer, one key head, compressed keys."""


def on_text(path, ids, start, question, length=LENGTH, **params):
    """The answer about the first window's beginning; mean keys are those of all windows."""
    subject, main = study(path, ids, start)
    subject = type(subject)(**{**vars(subject), "windows": ids[:1, :length]})
    return perform(question, subject, main, text="x", **params)


@pytest.mark.parametrize("case", CASES)
def test_one_head_in_plain_loops(model_dirs, case):
    name, skip, start, windows, divisors = CASES[case]
    ids = some_windows(TEXTS, LENGTH + 6, start)
    truth = truth_of(model_dirs[name], ids)
    layer, head = 1, 3
    found = on_text(model_dirs[name], ids, start, HeadOnText, head="L1H3", skip=skip).values
    queries, keys = truth.queries[layer], truth.keys[layer]
    kv = head * keys.shape[1] // queries.shape[1]
    means = keys[:, kv].mean(axis=0)

    np.testing.assert_allclose(
        found["pattern"], truth.attentions[layer][0, head, :LENGTH, :LENGTH], atol=1e-5
    )
    for n in range(LENGTH):
        q = queries[0, head, n].astype(float) / divisors[layer]
        seen = range(first_visible(n, 0, windows[layer]), n + 1)
        s = {i: math.fsum(q * keys[0, kv, i]) for i in seen}
        a = {i: math.fsum(q * means[i]) for i in seen}
        unseen = [i for i in range(LENGTH) if i not in seen]
        for name_, part in (("score", s), ("position", a)):
            assert np.isnan(found[name_][n, unseen]).all()
            np.testing.assert_allclose(found[name_][n, list(seen)], list(part.values()), atol=1e-4)
        counted = [i for i in seen if i >= skip]
        if not counted:
            assert np.isnan(
                [found["attention_distance"][n], *(found[share][n] for share in SHARES)]
            ).all()
            assert np.isnan(found["kernel"][n]).all()
            continue
        kernel = oracles.softmax([a[i] for i in counted])
        np.testing.assert_allclose(found["kernel"][n, counted], kernel, atol=1e-5)
        attention = oracles.softmax([s[i] for i in counted])
        gap = math.fsum(abs(k - p) for k, p in zip(kernel, attention, strict=True)) / 2
        assert found["attention_distance"][n] == pytest.approx(gap, abs=1e-5)
        if len(counted) > 1:
            whole = oracles.variance([s[i] for i in counted])
            expected = [
                oracles.variance([a[i] for i in counted]) / whole,
                oracles.variance([s[i] - a[i] for i in counted]) / whole,
            ]
            got = [found[share][n] for share in SHARES]
            np.testing.assert_allclose(got[:2], expected, rtol=1e-3, atol=1e-4)
            assert sum(got) == pytest.approx(1)
        skipped = math.fsum(truth.attentions[layer][0, head, n, :skip])
        assert found["skipped"][n] == pytest.approx(skipped, abs=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_all_heads_are_the_heads(model_dirs, case):
    name, skip, start, *_ = CASES[case]
    ids = some_windows(TEXTS, LENGTH + 6, start)
    found = on_text(model_dirs[name], ids, start, OwnText, skip=skip)
    truth = truth_of(model_dirs[name], ids[:, :LENGTH])
    np.testing.assert_allclose(
        found.values["pattern"], np.stack([each[0] for each in truth.attentions]), atol=1e-5
    )
    assert [*range(LENGTH)] == found.coordinates["query"].tolist()

    layer, head = 2, 1
    one = on_text(model_dirs[name], ids, start, HeadOnText, head="L2H1", skip=skip).values
    sums = np.zeros(2)
    for n in range(LENGTH):
        seen = np.isfinite(one["kernel"][n])
        if seen.any():
            sums += [one[part][n, seen].astype(float).var() for part in ("position", "score")]
    share = found.values["position_share"][layer, head]
    assert share == pytest.approx(sums[0] / sums[1], rel=1e-3)
    total = sum(found.values[each] for each in SHARES)
    np.testing.assert_allclose(total, 1)


@pytest.mark.parametrize("name", OTHERS)
def test_every_rule_of_scores(name, tmp_path):
    path = FAMILY_MODELS[name].build(tmp_path / name)
    ids = some_windows(TEXTS, LENGTH + 6, True)
    patterns = on_text(path, ids, True, OwnText, skip=0).values["pattern"]
    truth = truth_of(path, ids[:1, :LENGTH])
    for layer, expected in enumerate(truth.attentions):
        np.testing.assert_allclose(patterns[layer], expected[0], atol=1e-5)
    for cell in ("L0H1", "L1H2"):
        found = on_text(path, ids, True, HeadOnText, head=cell, skip=0).values
        np.testing.assert_allclose(found["position"] + found["content"], found["score"], atol=1e-5)
        weights = np.exp(np.nan_to_num(found["score"].astype(float), nan=-np.inf))
        pattern = found["pattern"] / found["pattern"].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(weights / weights.sum(axis=1, keepdims=True), pattern, atol=1e-5)
        np.testing.assert_allclose(found["pattern"], patterns[int(cell[1]), int(cell[3])])


def test_a_positional_head_and_a_symbolic_one(tmp_path):
    """Content zero in the one, position constant in the other; in the third both are as built.

    Every token stands once at every position, so that the mean content is the same everywhere.
    """
    T = 31
    path = contextual.additive(tmp_path / "additive", CONTENT, T)
    shifts = (np.arange(VOCABULARY)[:, None] + 3 * np.arange(T)) % VOCABULARY
    shifts = np.tile(shifts, (10, 1))  # a group each
    found = [
        on_text(path, shifts, False, HeadOnText, T, head=f"L0H{head}", skip=1) for head in range(3)
    ]
    symbolic, both, positional = (each.values for each in found)
    n = T - 1
    content = np.array(CONTENT)[shifts[0]] - np.mean(CONTENT)

    np.testing.assert_allclose(positional["content"][n], 0, atol=1e-4)
    np.testing.assert_allclose(np.diff(positional["position"][n]), 1 / TAU, atol=1e-4)
    np.testing.assert_allclose(positional["position_share"][2:], 1, atol=1e-4)
    np.testing.assert_allclose(positional["attention_distance"][2:], 0, atol=1e-4)
    np.testing.assert_allclose(np.ptp(symbolic["position"][n]), 0, atol=1e-4)
    np.testing.assert_allclose(symbolic["content"][n], content, atol=1e-4)
    np.testing.assert_allclose(symbolic["content_share"][2:], 1, atol=1e-4)
    np.testing.assert_allclose(symbolic["kernel"][n, 1:], 1 / n, atol=1e-5)
    np.testing.assert_allclose(both["content"][n], content, atol=1e-4)
    np.testing.assert_allclose(np.diff(both["position"][n]), 1 / TAU, atol=1e-4)


def test_blocks_of_a_long_text(model_dirs, monkeypatch):
    monkeypatch.setattr(own_run, "MAX_PATTERN_CELLS", 3 * 5 * 6 * 6)
    ids = some_windows(TEXTS, LENGTH, True)
    found = on_text(model_dirs["gpt2"], ids, True, OwnText)
    whole = truth_of(model_dirs["gpt2"], ids).attentions

    assert [0, 3, 6, 9, 12, 15] == found.coordinates["key"].tolist()
    for row, key in np.ndindex(6, 6):
        rows = range(3 * row, min(3 * row + 3, LENGTH))
        mass = [whole[2][0, 4, n, 3 * key : 3 * key + 3].sum() for n in rows]
        assert found.values["pattern"][2, 4, row, key] == pytest.approx(np.mean(mass), abs=1e-5)
    np.testing.assert_allclose(found.values["pattern"].sum(axis=-1), 1, rtol=1e-5)


def test_queries_that_are_kept_of_a_long_text(model_dirs, monkeypatch):
    ids = some_windows(TEXTS, LENGTH, True)
    whole = on_text(model_dirs["llama"], ids, True, HeadOnText, head="L1H5")
    monkeypatch.setattr(spec, "MAX_CELLS", 4 * LENGTH)
    part = on_text(model_dirs["llama"], ids, True, HeadOnText, head="L1H5", around=9)

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


def test_by_way_of_the_store(model_dirs, tmp_path):
    text = {"text": "the lord said unto moses"}
    run = {"corpus": "sample", "context": 23, "windows": 7}
    found = ask(tmp_path, "own-text", model_dirs["gpt2"], text, **run)
    head = ask(tmp_path, "own-text-head", model_dirs["gpt2"], {**text, "head": "L1H2"}, **run)

    tokens = found.words("tokens")
    assert len(tokens) == found.values["pattern"].shape[-1] == len(head.values["score"])
    assert len(tokens) == found.provenance["text_tokens"]
    assert ("sample", 23, 7) == tuple(
        found.provenance[name] for name in ("corpus", "context", "windows")
    )
    np.testing.assert_allclose(head.values["pattern"], found.values["pattern"][1, 2], rtol=1e-6)


def test_layers_without_heads(tmp_path):
    path = FAMILY_MODELS["lfm2"].build(tmp_path / "lfm2")
    run = {"corpus": "sample", "context": 23, "windows": 7}
    found = ask(tmp_path, "own-text", path, {"text": "the lord said"}, **run).values
    assert np.isnan(found["pattern"][[0, 2]]).all()
    np.testing.assert_allclose(found["pattern"][1].sum(axis=-1), 1, rtol=1e-5)
    with refused("Layer 0 has no heads"):
        ask(tmp_path, "own-text-head", path, {"text": "the lord said", "head": "L0H0"}, **run)


def test_texts_that_are_refused(model_dirs, tmp_path):
    run = {"corpus": "sample", "context": 23, "windows": 7}
    with refused("Expected a text, got none"):
        ask(tmp_path, "own-text", model_dirs["gpt2"], {"text": " "}, **run)
    with refused("the context holds 23"):
        ask(tmp_path, "own-text", model_dirs["gpt2"], {"text": "moses " * 60}, **run)
