"""Longer contexts: transformers' own scaled models by loops, and kernels known on paper."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from poskernel_core.analyses import find
from poskernel_core.analyses.dilution.formulas import ends_of, in_parts, long_texts, offset_kernel
from poskernel_core.analyses.dilution.longer import LongerContexts
from poskernel_core.common.attention import ScoreRule
from poskernel_core.common.errors import NotInModel
from poskernel_core.engine.engine import describe_run
from poskernel_core.forward.edits import Chain, Edit
from poskernel_core.forward.scaled_rotation import ScaledRotation, scaled_speeds
from tests.support import oracles_dilution as oracle
from tests.support.builders import families
from tests.support.builders.contextual import ask, some_windows, study
from tests.support.builders.made import build, rotary_sizes
from tests.support.builders.rotary import scaled
from tests.support.passes import loaded
from tests.support.raw import of_all_texts
from tests.support.refusals import refused

LENGTH, SKIP = 53, 3
SCALINGS = ("own", "linear", "YaRN")
AMPLITUDE = 3.0


def perform(path, windows, start=True, **params):
    subject, _ = study(path, windows, start)
    checked = LongerContexts.params(**{"length": windows.shape[1], "skip": SKIP, **params})
    return of_all_texts(LongerContexts().perform(subject, {}, checked, lambda done, total: None))


def ends(texts, first, factor, length):
    """The start token and the last tokens of every text."""
    return np.hstack([texts[:, :first], texts[:, -factor * (length - first) :]])


def constant(path):
    """A Qwen2 whose scores are `3 cos(theta (n - i))` whatever the tokens, a pair for each head."""
    config = Qwen2Config(**rotary_sizes(context=32, heads=2, key_heads=2), hidden_size=8)
    build(path, config, seed=3)
    model = loaded(path).module
    with torch.no_grad():
        for layer in model.model.layers:
            for part in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                part.weight.zero_()
                part.bias.zero_()
                part.bias[0] = part.bias[4 + 1] = math.sqrt(2 * AMPLITUDE)
    return path


def test_parts_by_hand():
    """Losses 1 to 6 of two lengths in parts of two and one; a part without the first token."""
    loss = np.array([[math.nan, 2.0, 3, 4, 5, 6]])
    assert [[2, 3, 4.5, 6]] == in_parts(loss, 2, 2).tolist()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("each", "joined"), [(1, 1), (3, 2), (4, 4), (9, 4)])
def test_texts_are_joined_in_order(first, each, joined):
    """Group 7 counts on from 700: its texts go on where they stop, and stay in their group."""
    body = 5
    rows = [
        [-1] * first + [100 * (w % 10) + (w // 10) * body + j for j in range(body)]
        for w in range(10 * each)
    ]
    found = long_texts(np.array(rows), first, 4)
    assert (each // joined * 10, first + joined * body) == found.shape
    for number, text in enumerate(found.tolist()):
        begin = 100 * (number % 10) + number // 10 * joined * body
        assert [-1] * first + [*range(begin, begin + joined * body)] == text


def test_ends_by_hand():
    """Of 53 tokens the last 13 hold the queries; the first of them, 40, sees 3 to 40."""
    found = ends_of(53, 3)
    assert [12, 10, 9, 7, 5, 3, 2, 0] == found.back.tolist()
    assert (38, 50) == (found.offsets, found.span)


@given(st.integers(0, 2**20), st.sampled_from([None, 5]))
def test_kernels_by_offset(seed, window):
    """They add up to 1, and hidden offsets have nothing."""
    draw = np.random.default_rng(seed).normal
    at, rule = np.array([14, 17, 19]), ScoreRule(0.7, window)
    found = offset_kernel(draw(size=(6, 5, 3, 7)), draw(size=(2, 17, 7)), at, 3, 11, rule)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert window is None or (found[:, window:] == 0).all()
    assert (found[:, : window or 11] > 0).all()


@pytest.mark.parametrize("factor", [2, 4])
@pytest.mark.parametrize("scaling", ["linear", "YaRN"])
@pytest.mark.parametrize("base", [500.0, 10_000.0, 1e6])
def test_speeds_are_those_of_transformers(scaling, factor, base):
    """As transformers computes them of a configuration, in any order and twice each."""
    angles = {"rope_type": scaling.lower(), "rope_theta": base, "factor": float(factor)}
    config = Qwen2Config(
        hidden_size=64, num_attention_heads=1, max_position_embeddings=factor * 256,
        rope_parameters=angles | {"original_max_position_embeddings": 256},
    )  # fmt: skip
    expected, attention = ROPE_INIT_FUNCTIONS[scaling.lower()](config, torch.device("cpu"))
    own = base ** (-np.arange(32) / 32)
    order = np.random.default_rng(7).permutation(np.tile(np.arange(32), 2))
    found, size = scaled_speeds(own[order], scaling, factor, 256)
    np.testing.assert_allclose(found, expected.numpy()[order], rtol=1e-6, atol=1e-9)
    assert attention == pytest.approx(size)


def test_yarn_by_hand():
    """Pairs that turn often in the length keep their speed, those that turn not once slow down."""
    own = 10_000.0 ** (-np.arange(64) / 64)
    found, size = scaled_speeds(own, "YaRN", 4, 4096)
    turns = 4096 * own / (2 * math.pi)
    np.testing.assert_allclose(found[turns > 40], own[turns > 40], rtol=1e-6)
    np.testing.assert_allclose(found[turns < 0.7], own[turns < 0.7] / 4, rtol=1e-6)
    assert 0.1 * math.log(4) + 1 == pytest.approx(size)


MADE = {
    name: families.EVERY_MODEL[name].build
    for name in ("llama", "qwen3", "gpt_neox", "cohere", "olmo2", "mistral")
}


@pytest.mark.slow
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("name", MADE)
def test_logits_are_those_of_transformers(tmp_path, name, scaling):
    """With scaled angles the model is the one that transformers loads with that configuration."""
    path = MADE[name](tmp_path / "m")
    model = loaded(path)
    length = model.geometry.n_ctx
    texts = some_windows(2, 4 * length)
    found = model.run(torch.from_numpy(texts), ScaledRotation(scaling, 4, length))
    expected = oracle.scaled_logits(path, texts, scaling, 4, length)
    assert (found - expected).abs().max() < 1e-4
    if scaling != "own":
        plain = model.run(torch.from_numpy(texts))
        assert (plain - expected).abs().max() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize(("name", "start"), [("llama", True), ("mistral", False)])
def test_every_context(paths, name, start):
    """Kernels, distances, losses and errors of three heads, by loops."""
    path, first = paths[name], int(start)
    length = 23 if start else 25
    window = 7 if name == "mistral" else None
    windows = some_windows(40, length, start)
    found = perform(path, windows, start)

    texts = long_texts(windows, first, 4)
    assert (10, length) == (found.provenance["texts"], found.params["length"])
    assert ([1, 2, 4], [*SCALINGS]) == (
        found.coordinates["factor"].tolist(),
        found.words("scaling"),
    )
    shown, worst = found.coordinates["offset"], 0.0
    for layer, head in [(0, 1), (2, 4)]:
        kernels = {}
        for (i, scaling), (j, factor) in product(enumerate(SCALINGS), enumerate((1, 2, 4))):
            end = ends(texts, first, factor, length)
            queries, keys = oracle.queries_and_keys(path, end, scaling, factor, length)
            one, other = queries[layer], keys[layer]
            scale = 1 / math.sqrt(len(one[0][0][0]))
            every = [*range(10)]
            kernels[i, j] = [
                oracle.end_kernel(
                    [one[t] for t in kept], [other[t] for t in kept], head, length, SKIP, scale,
                    window,
                )
                for kept in (every, *([t for t in every if t != out] for out in every))
            ]  # fmt: skip
            mine = found.values["kernel"][layer, head, i, j]
            worst = max(worst, np.abs(mine - np.array(kernels[i, j][0])[shown]).max())
            gaps = [oracle.apart(*two) for two in zip(kernels[i, j], kernels[0, 0], strict=True)]
            assert gaps[0] == pytest.approx(found.values["distance"][layer, head, i, j], abs=1e-5)
            error = math.sqrt(9 * np.var(gaps[1:]))
            assert error == pytest.approx(found.errors["distance"][layer, head, i, j], abs=1e-5)
        gap = found.values["longest_distance"][layer, head]
        assert gap == pytest.approx(oracle.apart(kernels[0, 2][0], kernels[0, 0][0]), abs=1e-5)
    assert worst < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("name", "start"), [("llama", True), ("bloom", False), ("jamba", True)])
def test_losses(tmp_path, name, start):
    """By position and on the last quarter, by transformers' own logits; ALiBi, and no positions."""
    path, first = families.EVERY_MODEL[name].build(tmp_path / "m"), int(start)
    length = 29
    windows = some_windows(40, length, start)
    found = perform(path, windows, start)
    texts = long_texts(windows, first, 4)
    body, last = length - first, length // 4
    sizes = [len(part) for part in np.array_split(np.arange(body), 8)]
    scalings = SCALINGS if name == "llama" else ("own",)
    assert [*scalings] == found.words("scaling")
    assert (found.values["distance"][..., 0] == 0).all()
    plain = None
    for i, scaling in enumerate(scalings):
        for j, factor in enumerate((1, 2, 4)):
            end = ends(texts, first, factor, length)
            loss = oracle.losses(oracle.scaled_logits(path, end, scaling, factor, length), end)
            loss = [row if start else [math.nan, *row] for row in loss]
            tails = [sum(row[-last:]) / last for row in loss]
            plain = plain or tails
            change = [a - b for a, b in zip(tails, plain, strict=True)]
            assert np.mean(change) == pytest.approx(found.values["loss_change"][i, j], abs=1e-5)
            error = np.std(change) / 3
            assert error == pytest.approx(found.errors["loss_change"][i, j], abs=1e-5)
            at = 0
            for part, size in enumerate(sizes * factor):
                means = [np.nanmean(row[at : at + size]) for row in loss]
                assert np.mean(means) == pytest.approx(found.values["loss"][i, j, part], abs=1e-5)
                at += size
            assert np.isnan(found.values["loss"][i, j, len(sizes) * factor :]).all()
    ends_at = np.cumsum(sizes * 4) + first - 1
    assert ends_at.tolist() == found.coordinates["position"].tolist()


def test_known_kernels(tmp_path):
    """Scores of 3 cos(theta k): own angles change nothing, scaled ones turn the slower kernels."""
    path = constant(tmp_path / "m")
    found = perform(path, some_windows(40, 32), skip=1)
    offsets = 32 - 8 - 1 + 1
    speeds = 500.0 ** (-np.arange(2) / 2)
    for head in range(2):
        for j, factor in enumerate((1, 2, 4)):
            both = {"own": (speeds, 1.0), "linear": (speeds / factor, 1.0),
                    "YaRN": scaled_speeds(speeds, "YaRN", factor, 32)}  # fmt: skip
            for i, scaling in enumerate(SCALINGS):
                speed, size = both[scaling]
                scores = AMPLITUDE * size**2 * np.cos(speed[head] * np.arange(offsets))
                weights = np.exp(scores)
                expected = weights / weights.sum()
                first = np.exp(AMPLITUDE * np.cos(speeds[head] * np.arange(offsets)))
                shown = found.coordinates["offset"]
                np.testing.assert_allclose(
                    found.values["kernel"][0, head, i, j], expected[shown], atol=1e-5
                )
                gap = oracle.apart(expected.tolist(), (first / first.sum()).tolist())
                assert gap == pytest.approx(found.values["distance"][0, head, i, j], abs=1e-5)
    assert found.values["distance"][:, :, 0].max() < 1e-5
    assert found.values["distance"][0, 0, 1, 2] > 0.3


def test_attention_that_is_kept(paths):
    """The scaled pass forms no whole pattern, and factor 1 gives what an edited pass gives."""
    half = ScaledRotation("linear", 2, 53)
    assert half.keeps_attention
    assert Chain([half, half]).keeps_attention
    assert not Chain([half, Edit()]).keeps_attention
    assert not Chain([]).keeps_attention  # what reads whole patterns names no edit so
    model, tokens = loaded(paths["llama"]), torch.from_numpy(some_windows(3, 53))
    plain = model.run(tokens, Edit())
    for scaling in SCALINGS:
        found = model.run(tokens, ScaledRotation(scaling, 1, 53))
        torch.testing.assert_close(found, plain, atol=1e-5, rtol=0)
    assert not torch.allclose(model.run(tokens, ScaledRotation("linear", 2, 53)), plain, atol=1e-2)


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_angles_that_are_scaled_already(tmp_path, kind):
    """Linear scaling goes on from them; YaRN is left out, and the reason is told."""
    found = perform(scaled(kind)(tmp_path / "m"), some_windows(20, 23))
    assert ["own", "linear"] == found.words("scaling")
    assert [1, 2] == found.coordinates["factor"].tolist()
    told = found.provenance["left_out"]
    assert ["4 times", "YaRN: "] == [told[0][:7], told[1][:6]]
    with refused("follow none", NotInModel):
        scaled_speeds(np.array([1.0, 0.5, 0.0]), "YaRN", 2, 32)


def test_too_little_text(paths):
    with refused("10 texts of 38 tokens or more"):
        perform(paths["llama"], some_windows(10, 19))


def test_a_table_of_angles(tmp_path):
    path = families.EVERY_MODEL["gptj"].build(tmp_path / "m")
    with refused("table of 61 positions: choose a length of 15 or less"):
        perform(path, some_windows(40, 16))


def test_parameters(paths):
    """The context of the run by default, if it is affordable; ends that see keys."""
    run, question = describe_run(str(paths["llama"])), find("longer-contexts")
    assert 53 == question.canonical(run, question.params()).context
    long = run.model_copy(update={"context": 8192})
    assert 512 == question.canonical(long, question.params()).context
    params = question.params(length=53, texts=11)
    read = question.canonical(run, params)
    assert (53, 44, (0,)) == (read.context, read.windows, read.positions)
    assert 11 * 53 * 19 == question.tokens(read, params)
    with refused("at most a quarter of 53 tokens, got 14"):
        question.canonical(run, question.params(length=53, skip=14))


def test_through_the_laboratory(paths, tmp_path):
    found = ask(tmp_path, "longer-contexts", paths["llama"], {"length": 31, "skip": 2})
    assert ("float32", 10, 53, []) == tuple(
        found.provenance[name] for name in ("dtype", "texts", "trained_length", "left_out")
    )
    assert (3, 6, 3, 3) == found.values["distance"].shape
    assert (found.values["distance"][:, :, :, 0] == 0).all()
    assert 0 <= found.values["distance"].min() <= found.values["distance"].max() <= 1
