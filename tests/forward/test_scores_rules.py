"""How layers make scores: ALiBi's closed form, soft caps, sinks, chunks; known answers."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.kernels.formulas import effective_tokens, kernel_rows
from poskernel_core.analyses.previous_token.formulas import position_profile
from poskernel_core.common.attention import ScoreRule, Slopes, only_visible
from poskernel_core.common.specs import BAND
from poskernel_core.forward import attention
from poskernel_core.forward.attention import (
    AttentionCall,
    attend,
    band_sums,
    diagonal_sums,
    pattern_blocks,
)
from poskernel_core.forward.edits import Edit, edited_attention
from poskernel_core.forward.masks import MaskSpec, mask_spec_of
from poskernel_core.forward.precision import is_finite
from poskernel_core.statistics.base import over_texts

HEADS, LENGTH, WIDTH = 3, 23, 5


def call_of(seed=0, **rule):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, n, LENGTH, WIDTH, generator=generator) for n in (HEADS, 1, 1))
    return AttentionCall(1, q, k, v, 0.7, **rule)


def in_loops(call):
    """The pattern `[text, head, query, key]`, number by number."""
    found = np.zeros((2, HEADS, LENGTH, LENGTH))
    for text, head, n in np.ndindex(2, HEADS, LENGTH):
        weights = {}
        for i in range(n + 1):
            if call.window and n - i >= call.window:
                continue
            if call.chunk and i // call.chunk < n // call.chunk:
                continue
            s = call.scale * float(call.q[text, head, n].double() @ call.k[text, 0, i].double())
            s = call.cap * math.tanh(s / call.cap) if call.cap else s
            if call.slopes:
                s -= call.slopes.factor * call.slopes.per_head[head] * (n - i)
            weights[i] = math.exp(s)
        sink = 0.0 if call.sinks is None else math.exp(float(call.sinks[head]))
        for i, weight in weights.items():
            found[text, head, n, i] = weight / (sum(weights.values()) + sink)
    return found


RULES = {
    "plain": {},
    "window": {"window": 7},
    "chunk": {"chunk": 7},
    "cap": {"cap": 1.3},
    "slopes": {"slopes": Slopes((0.5, 0.11, 0.0), factor=0.7)},
    "sinks": {"sinks": torch.tensor([1.7, -0.4, 0.0])},
    "all": {
        "window": 5, "cap": 0.9, "slopes": Slopes((0.3, 0.1, 0.2)),
        "sinks": torch.tensor([0.1, 0.2, 3.0]),
    },
}  # fmt: skip


@pytest.mark.parametrize("block", [4, 64])
@pytest.mark.parametrize("name", RULES)
def test_every_road_is_the_loops(monkeypatch, name, block):
    monkeypatch.setattr(attention, "BLOCK", block)
    call = call_of(**RULES[name])
    expected = in_loops(call)
    out = np.einsum("thni,tid->thnd", expected, call.v[:, 0].double())

    whole = np.zeros_like(expected)
    for part in pattern_blocks(call):
        rows, keys = part.pattern.shape[2:]
        place = whole[:, :, part.first_row : part.first_row + rows]
        place[..., part.first_key : part.first_key + keys] = part.pattern.numpy()
    z, pattern = edited_attention(call, Edit())

    np.testing.assert_allclose(whole, expected, atol=1e-6)
    np.testing.assert_allclose(pattern, expected, atol=1e-6)
    for found in (z, attend(call), attend(call, lambda _block: None)):
        np.testing.assert_allclose(found, out, atol=2e-6)


@pytest.mark.parametrize("block", [1, 11, 64])
@pytest.mark.parametrize("name", RULES)
def test_diagonals_of_blocks(monkeypatch, name, block):
    monkeypatch.setattr(attention, "BLOCK", block)
    call = call_of(**RULES[name])
    expected = in_loops(call)

    for reuse, without in itertools.product((False, True), repeat=2):
        parts = pattern_blocks(call, reuse=reuse)
        found = sum(diagonal_sums(part, LENGTH + 3, without_key_0=without) for part in parts)
        counted = expected[..., 1:] if without else expected
        for offset in range(LENGTH + 3):
            diagonal = np.diagonal(counted, -offset - without, axis1=-2, axis2=-1)
            total = diagonal.sum(axis=-1) if diagonal.shape[-1] else 0
            np.testing.assert_allclose(found[..., offset], total, atol=1e-5)


def test_blocks_that_share_their_memory():
    call = call_of()
    for reuse, places in ((False, 3), (True, 1)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention, "BLOCK", 9)
            blocks = list(pattern_blocks(call, reuse=reuse))
        assert len({block.pattern.data_ptr() for block in blocks}) == places


def test_a_hidden_score_may_be_infinite():
    """Keys that a query may not see take nothing from it, however large their score would be."""
    call = call_of()
    q, k = torch.zeros_like(call.q), torch.zeros_like(call.k)
    q[:, :, :7, 0], q[:, :, 7:, 1] = 1e30, 1.0
    k[:, :, 7] = torch.tensor([1e30, 0.3, 0.0, 0.0, 0.0])
    call = AttentionCall(1, q, k, call.v, call.scale)

    for reuse in (False, True):
        (block,) = pattern_blocks(call, reuse=reuse)
        for n in (0, 3, 6, 7, 22):
            weights = torch.ones(n + 1)
            if n >= 7:
                weights[7] = math.exp(0.7 * 0.3)
            expected = (weights / weights.sum()).expand(2, HEADS, -1)
            torch.testing.assert_close(block.pattern[:, :, n, : n + 1], expected)
            assert not block.pattern[:, :, n, n + 1 :].any()


@pytest.mark.parametrize("order", ["heads first", "positions first"])
@pytest.mark.parametrize("rows", [1, 11, 32])
@pytest.mark.parametrize(
    "rule", [{}, {"cap": 1.1, "slopes": Slopes((0.5, 0.11, 0.0, 0.2), factor=0.7)}]
)
def test_raw_scores_of_blocks(monkeypatch, rule, rows, order):
    monkeypatch.setattr(attention, "BAND_ROWS", rows)
    generator = torch.Generator().manual_seed(3)
    q, k = (torch.randn(3, n, LENGTH, WIDTH, generator=generator) for n in (4, 2))
    if order == "positions first":
        q, k = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k))
    call = AttentionCall(0, q, k, k, 0.3, **rule)

    found = band_sums(call, 5, 2)

    keys = k.double().repeat_interleave(2, dim=1)
    scores = (0.3 * q.double() @ keys.transpose(-1, -2)).numpy()
    if call.cap:
        scores = 1.1 * np.tanh(scores / 1.1)
    if call.slopes:
        distance = np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))
        scores -= 0.7 * np.array(call.slopes.per_head)[:, None, None] * distance
    after = scores[:, :, 2:, 2:]
    for offset in range(-5, 6):
        expected = np.trace(after, -offset, axis1=-2, axis2=-1)
        np.testing.assert_allclose(found[..., offset + 5], expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("order", ["heads first", "positions first"])
def test_sums_over_texts(dtype, order):
    x = torch.randn(3, 5, 7, 2, generator=torch.Generator().manual_seed(1)).to(dtype)
    expected = x.double().numpy().sum(axis=0)
    if order == "positions first":
        x = x.transpose(1, 2).contiguous().transpose(1, 2)

    found = over_texts(x)

    assert torch.float32 == found.dtype
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "seen",
    [
        lambda x: x,
        lambda x: x.transpose(0, 2),
        lambda x: x[:, 1:, ::2],
        lambda x: x[:, 3, 2].expand(4, -1),
    ],
    ids=["dense", "turned", "part", "expanded"],
)
def test_numbers_that_are_none(seen, bad):
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(2))
    assert is_finite(seen(x))
    x[1, 3, 2] = bad
    assert not is_finite(seen(x))
    x[1, 3, 2], x[0, 0, 1] = 0.0, bad
    assert is_finite(seen(x)) == (seen(x).isfinite().all().item())
    assert is_finite(torch.empty(0, 3))


def test_falcon_rounds_slope_times_position():
    """In bfloat16 positions above 256 come in steps of two, and 257 is a tie that goes to 256."""
    slopes = Slopes((0.5,), rounded=True)
    torch_bias = torch.tensor([0.5]).bfloat16()[:, None] * torch.arange(400)
    np.testing.assert_array_equal(slopes.bias(400), torch_bias.double())
    assert [127.5, 128.0, 128.0, 129.0] == slopes.bias(259)[0, 255:].tolist()


def test_position_profile_of_a_rule():
    rng = np.random.default_rng(3)
    queries, keys = rng.normal(size=(2, 9, 4)), rng.normal(size=(1, 9, 4))
    rule = ScoreRule(0.6, cap=1.2, slopes=Slopes((0.4, 0.1)))

    found = position_profile(queries, keys, rule, 1)

    for head, offset in np.ndindex(2, 7):
        k, scores = offset - 3, []
        for n in range(1, 9):
            if 1 <= n - k < 9:
                s = 1.2 * math.tanh(0.6 * queries[head, n] @ keys[0, n - k] / 1.2)
                scores.append(s - rule.slopes.per_head[head] * k)
        assert found[head, BAND + k] == pytest.approx(np.mean(scores))


def mask(seen):
    """What a mask of 300 tokens lets see, as transformers hands it over."""
    return mask_spec_of(q_length=300, kv_length=300, mask_function=lambda _b, _h, q, k: seen(q, k))


@given(st.integers(1, 320))
def test_masks_are_recognised(size):
    window = size if size < 300 else None
    assert MaskSpec() == mask(lambda q, k: k <= q)
    assert MaskSpec(window=window) == mask(lambda q, k: (k <= q) & (k > q - size))
    chunk = None if size == 1 else window
    expected = MaskSpec(window=1) if size == 1 else MaskSpec(chunk=chunk)
    assert expected == mask(lambda q, k: (k <= q) & (k // size == q // size))


@pytest.mark.parametrize(
    "seen",
    [
        lambda q, k: k <= q + 1,
        lambda q, k: (k <= q) & (k != 3),
        lambda q, k: (k <= q) & ((k > q - 9) | (k < 2)),
        lambda q, k: (k <= q) & (k > q - 9 - (q > 280) * 1),
        lambda q, k: (k >= 0) & (q >= 0),
    ],
)
def test_other_masks_are_not_taken_for_one_of_them(seen):
    assert not mask(seen).known


@pytest.mark.parametrize("window", [None, 1, 4, 20])
def test_only_visible(window):
    values = np.random.default_rng(3).normal(size=(2, 9, 9))
    found = only_visible(values, window)

    for head in range(2):
        for n in range(9):
            seen = [i for i in range(n + 1) if window is None or n - i < window]
            assert seen == np.flatnonzero(~np.isnan(found[head, n])).tolist()
            assert (values[head, n, seen] == found[head, n, seen]).all()
            assert ScoreRule(1.0, window).first_visible(n) == seen[0]


def test_a_cap_holds_scores_of_mean_keys_too():
    """`a` is the capped score of the mean key: by hand, two keys of scores 3 and -1, cap 2."""
    rule = ScoreRule(1.0, cap=2.0)
    found = kernel_rows(np.array([[[1.0]]]), np.array([[[3.0], [-1.0]]]), rule)[0, 0]
    weights = np.exp([2 * math.tanh(1.5), 2 * math.tanh(-0.5)])
    np.testing.assert_allclose(found, weights / weights.sum())


@given(st.floats(0.01, 2.0), st.integers(60, 300))
def test_alibi_of_equal_content_decays_geometrically(slope, n):
    """`K(D) = (1 - r) r^D` with `r = e^-slope`, cut off at the text's beginning; so is its ETC."""
    queries, keys = np.ones((1, 2, WIDTH)), np.ones((1, n + 1, WIDTH))
    kernel = kernel_rows(queries, keys, ScoreRule(0.3, slopes=Slopes((slope,))))[0, 0]
    r = math.exp(-slope)
    expected = (1 - r) * r ** np.arange(n + 1) / (1 - r ** (n + 1))

    np.testing.assert_allclose(kernel[::-1], expected, rtol=1e-9, atol=1e-12)
    if r ** (n + 1) < 1e-6:
        assert effective_tokens(kernel) == pytest.approx((1 + r) / (1 - r), rel=1e-5)


def test_without_positions_equal_content_is_seen_alike():
    queries, keys = np.ones((3, 2, WIDTH)), np.full((1, 11, WIDTH), 0.4)
    np.testing.assert_allclose(kernel_rows(queries, keys, ScoreRule(2.0, cap=1.0)), 1 / 11)
