"""Rotary spectra and their kernels: by hand, in plain loops, on heads whose answer is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.analyses import find
from poskernel_core.analyses.rotary import formulas
from poskernel_core.common.errors import NotInModel
from poskernel_core.common.jackknife import jackknife
from poskernel_core.engine.engine import describe_run
from tests.support import builders, oracles
from tests.support import oracles_rotary as oracle
from tests.support.builders.rotary import SCALINGS, scaled
from tests.support.passes import loaded
from tests.support.raw import analyse, of_all_texts
from tests.support.refusals import refused

TEXTS, CONTEXT, SKIP, QUERY = 5, 43, 3, 37
NAMES = ("mistral", "gpt_neox", "yarn")
EACH = pytest.mark.parametrize("name", NAMES)
GATHER = ("keys", "queries", "patterns", "rotary")
SPEED = np.array([1.0, 0.3, 0.02])
SIZES = st.floats(0.01, 3)
ANGLES = st.floats(-math.pi, math.pi)
PAIRS = st.lists(st.tuples(SIZES, ANGLES), min_size=3, max_size=3)


@pytest.fixture(scope="module")
def models(model_dirs, tmp_path_factory):
    root = tmp_path_factory.mktemp("scaled")
    made = {name: scaled(name)(root / name) for name in SCALINGS if name in NAMES}
    return {**model_dirs, **made}


def gathered_of(path, ids):
    """A pass over token ids, with pairs and all that kernels need."""
    model = loaded(path)
    return pk.run_pass(model, ids, positions=(QUERY,), start_token=False, gather=GATHER)


def kernels_of(gathered, **params):
    question = find("equivariant-kernel")
    views = {"main": gathered, "rotary": gathered}
    asked = question.params(**{"query": QUERY, "skip": SKIP, **params})
    return of_all_texts(question.answer(views, asked, lambda done, total: None))


def made(pairs):
    """Mean pairs of one head, [head, pair]."""
    return np.array([[size * np.exp(1j * angle) for size, angle in pairs]])


def by_loops(truth, layer, head, scale):
    """Mean pairs of queries and of keys, and what their product is multiplied by."""
    means = [
        [oracle.mean_pair(side[layer], head, pair, SKIP) for pair in range(len(truth.speed))]
        for side in (truth.queries, truth.keys)
    ]
    return *means, scale * truth.factor**2


def bands_of(truth):
    """The band of each pair: wavelengths up to 10, up to the context, or longer."""
    waves = [2 * math.pi / float(theta) for theta in truth.speed]
    return [int(wave > 10) + int(wave > CONTEXT) for wave in waves]


@EACH
def test_spectrum_in_plain_loops(models, name):
    ids = builders.random_ids(TEXTS, CONTEXT, seed=11).numpy()
    gathered, truth = gathered_of(models[name], ids), oracle.turned_of(models[name], ids)
    found = analyse("rotary-spectrum", gathered, skip=SKIP, short=10).values
    waves = [2 * math.pi / theta for theta in truth.speed]

    for layer, head in ((0, 0), (1, 4), (2, 1)):
        queries, keys, strength = by_loops(truth, layer, head, gathered.header.scales[layer])
        swings, used = [], [q[2] * k[2] for q, k in zip(queries, keys, strict=True)]
        for pair, theta in enumerate(truth.speed):
            both = queries[pair][0] * keys[pair][0].conjugate()
            term = [
                strength * abs(both) * math.cos(theta * back + np.angle(both))
                for back in range(CONTEXT - SKIP)
            ]
            swings.append(math.sqrt(oracles.variance(term)))
            expected = {
                "wavelength": waves[pair],
                "amplitude": strength * abs(both),
                "phase": np.angle(both),
                "swing": swings[-1],
                "usage": used[pair] / math.fsum(used),
                "query_share": abs(queries[pair][0]) ** 2 / queries[pair][1],
                "key_share": abs(keys[pair][0]) ** 2 / keys[pair][1],
            }
            for value, number in expected.items():
                at = (layer, pair) if value == "wavelength" else (layer, head, pair)
                assert found[value][at] == pytest.approx(number, rel=1e-3, abs=1e-5), value
        for value, side in (("queries", queries), ("keys", keys)):
            share = math.fsum(abs(s[0]) ** 2 for s in side) / math.fsum(s[1] for s in side)
            assert found[f"mean_share_{value}"][layer, head] == pytest.approx(share, rel=1e-3)
        dominant = waves[swings.index(max(swings))]
        assert found["dominant_wavelength"][layer, head] == pytest.approx(dominant, rel=1e-4)
        for band, title in enumerate(("short", "middle", "long")):
            part = math.fsum(s for s, of in zip(swings, bands_of(truth), strict=True) if of == band)
            weight = found[f"{title}_weight"][layer, head]
            assert weight == pytest.approx(part / math.fsum(swings), rel=1e-3, abs=1e-6)
    pairs = len(truth.speed)
    assert np.isnan(found["amplitude"][..., pairs:]).all()
    assert np.isnan(found["wavelength"][..., pairs:]).all()


@EACH
def test_kernels_in_plain_loops(models, name):
    ids = builders.random_ids(TEXTS, CONTEXT, seed=12).numpy()
    gathered, truth = gathered_of(models[name], ids), oracle.turned_of(models[name], ids)
    found = kernels_of(gathered, short=10).values
    kernel = analyse("kernel", gathered, skip=SKIP, query=QUERY).values

    for layer, head in ((0, 1), (2, 3)):
        window = gathered.header.sliding_windows[layer]
        low = SKIP if window is None else max(SKIP, QUERY - window + 1)
        queries, keys, strength = by_loops(truth, layer, head, gathered.header.scales[layer])
        u, v = [q[0] for q in queries], [k[0] for k in keys]
        logits = [
            oracle.logit(u, v, truth.speed, strength, back) for back in range(QUERY - low + 1)
        ]
        whole = oracles.softmax(logits)
        seen = slice(0, len(whole))
        one = {value: array[layer, head] for value, array in found.items()}
        mean = math.fsum(logits) / len(logits)
        np.testing.assert_allclose(one["positional_logit"][seen], np.array(logits) - mean,
                                   atol=1e-5)  # fmt: skip
        np.testing.assert_allclose(one["equivariant_kernel"][seen], whole, atol=1e-6)
        assert one["etc"] == pytest.approx(1 / math.fsum(p**2 for p in whole), rel=1e-4)
        for band in range(3):
            kept = [place for place, of in enumerate(bands_of(truth)) if of != band]
            left = oracles.softmax([
                oracle.logit([u[p] for p in kept], [v[p] for p in kept],
                             [truth.speed[p] for p in kept], strength, back)
                for back in range(QUERY - low + 1)
            ])  # fmt: skip
            np.testing.assert_allclose(one["without_band"][band, seen], left, atol=1e-6)
            assert one["band_distance"][band] == pytest.approx(oracles.total_variation(left, whole),
                                                               abs=1e-5)  # fmt: skip
            assert one["band_etc"][band] == pytest.approx(1 / math.fsum(p**2 for p in left),
                                                          rel=1e-4)  # fmt: skip
        for value, other, measured in (
            ("mean_key_kernel", "kernel", "kernel_distance"),
            ("observed", "observed", "equivariant_attention_distance"),
        ):
            row = kernel[other][layer, head, low : QUERY + 1][::-1]
            np.testing.assert_allclose(one[value][seen], row, atol=1e-6)
            assert one[measured] == pytest.approx(oracles.total_variation(whole, row), abs=1e-5)
        assert one["attention_distance"] == pytest.approx(
            kernel["attention_distance"][layer, head], abs=1e-6
        )
        assert np.isnan(one["positional_logit"][len(whole) :]).all()
        assert (0 == one["equivariant_kernel"][len(whole) :]).all()


@EACH
def test_one_token_repeated(models, name):
    ids = np.full((3, CONTEXT), 7)
    gathered = gathered_of(models[name], ids)
    found = kernels_of(gathered)

    for value in ("kernel_distance", "equivariant_attention_distance", "attention_distance"):
        np.testing.assert_allclose(found.values[value], 0, atol=2e-5)
    assert found.values["etc"].min() < 0.9 * (QUERY - SKIP + 1)
    shares = analyse("rotary-spectrum", gathered, skip=SKIP)
    for value in ("mean_share_queries", "mean_share_keys"):
        np.testing.assert_allclose(shares.values[value], 1, atol=1e-5)
        np.testing.assert_allclose(shares.errors[value], 0, atol=1e-5)


def test_one_frequency_by_hand():
    """A pair of 8 tokens: nats 2, 0, -2, 0 at offsets 0, 2, 4, 6; without it all are alike."""
    speed = np.array([2 * math.pi / 8, 0.02])
    product = formulas.products(made([(2, 1), (0, 0)]), made([(2, 1), (1, 0)]), np.ones(2), 0.5)
    logit = formulas.positional_logit(product, speed, np.arange(9.0))

    np.testing.assert_allclose(logit[0, ::2], [2, 0, -2, 0, 2], atol=1e-12)
    kernel = formulas.equivariant_kernel(logit[:, 0:5:2])
    total = math.exp(2) + 1 + math.exp(-2)
    np.testing.assert_allclose(kernel[0], [math.exp(2) / total, 1 / total, math.exp(-2) / total])
    swing = formulas.swings(product, speed, np.arange(8.0))
    np.testing.assert_allclose(swing, [[math.sqrt(2), 0]], atol=1e-12)
    bands = formulas.bands_of(formulas.wavelengths(speed), 8.0, 100.0)
    assert [[True, False], [False, False], [False, True]] == bands.tolist()
    rest = formulas.positional_logit(product[:, ~bands[0]], speed[~bands[0]], np.arange(9.0))
    np.testing.assert_allclose(formulas.equivariant_kernel(rest), 1 / 9)


def test_bands_share_out_all_pairs():
    wave = formulas.wavelengths(np.array([3.0, 0.1, 0.0, np.nan]))
    bands = formulas.bands_of(wave, 16, 100)
    assert [1, 1, 1, 0] == bands.sum(axis=0).tolist()
    assert [0, 1, 2] == bands[:, :3].argmax(axis=0).tolist()


def gathered_by_hand(models, queries, keys, speed):
    """Statistics of a model whose pairs are replaced by these, in every layer and head."""
    gathered = gathered_of(models["llama"], builders.random_ids(2, CONTEXT, seed=13).numpy())
    arrays = dict(gathered.arrays)
    arrays["pair_speed"] = np.broadcast_to(np.float32(speed), arrays["pair_speed"].shape)
    for name, pairs in (("query", queries), ("key", keys)):
        part = np.stack([pairs.real, pairs.imag, np.abs(pairs) ** 2, np.abs(pairs)], axis=-1)
        kept = f"{name}_pairs"
        arrays[kept] = np.broadcast_to(np.float32(part), arrays[kept].shape)
        del arrays[f"{kept}.groups"], arrays[f"{kept}.step"]
    return replace(gathered, parts={"rotary": arrays})


def test_a_head_of_one_frequency(models):
    """Its wavelength dominates, its band weighs 1; without the band nothing is left of it."""
    speed = 2 * np.pi / np.array([4.0, 10.0, 21.0, 30.0, 900.0])
    pairs = np.array([0, 0, 2.5 * np.exp(0.7j), 0, 0])
    gathered = gathered_by_hand(models, pairs, pairs, speed)
    found = analyse("rotary-spectrum", gathered, skip=SKIP).values
    kernels = kernels_of(gathered).values
    visible = QUERY - SKIP + 1

    np.testing.assert_allclose(found["dominant_wavelength"], 21, rtol=1e-5)
    for band, weight in (("short", 0), ("middle", 1), ("long", 0)):
        np.testing.assert_allclose(found[f"{band}_weight"], weight, atol=1e-6)
    np.testing.assert_allclose(kernels["band_etc"][..., 1], visible, rtol=1e-5)
    np.testing.assert_allclose(kernels["band_etc"][..., 0], kernels["etc"], rtol=1e-5)
    assert (kernels["band_distance"][..., 1] > 0.3).all()
    np.testing.assert_allclose(kernels["band_distance"][..., [0, 2]], 0, atol=1e-6)
    tops = kernels["equivariant_kernel"][..., [0, 21]]
    np.testing.assert_allclose(tops[..., 0], tops[..., 1], rtol=1e-5)
    np.testing.assert_allclose(tops[..., 0], kernels["equivariant_kernel"].max(axis=-1))


@given(PAIRS, PAIRS, st.integers(0, 50), st.floats(0.1, 4))
def test_shifts_and_scales(queries, keys, shift, factor):
    u, v, offset = made(queries), made(keys), np.arange(29.0)
    turn, one = np.exp(1j * SPEED * shift), np.ones(3)

    def logit(u, v, at=offset, factor=one):
        return formulas.positional_logit(formulas.products(u, v, factor, 0.7), SPEED, at)

    plain = logit(u, v)
    np.testing.assert_allclose(logit(u * turn, v * turn), plain, atol=1e-9)
    np.testing.assert_allclose(logit(u * turn, v), logit(u, v, offset + shift), atol=1e-9)
    np.testing.assert_allclose(logit(factor * u, v), factor * plain, atol=1e-9)
    np.testing.assert_allclose(logit(u, v, factor=factor * one), factor**2 * plain, atol=1e-9)
    kernel = formulas.equivariant_kernel(plain)
    assert kernel.sum() == pytest.approx(1)
    np.testing.assert_allclose(formulas.equivariant_kernel(plain + 30 * factor), kernel)


@pytest.mark.parametrize("skip", [0, 4, 5])
def test_errors_are_jackknives(models, skip):
    ids = builders.random_ids(4, CONTEXT, seed=14).numpy()
    gathered = gathered_of(models["llama"], ids)
    found = analyse("rotary-spectrum", gathered, skip=skip)
    alone = [
        analyse("rotary-spectrum", gathered_of(models["llama"], np.delete(ids, text, axis=0)),
                   skip=skip).values
        for text in range(4)
    ]  # fmt: skip
    for value in ("amplitude", "usage", "mean_share_keys", "key_share"):
        expected = jackknife(np.stack([each[value] for each in alone]))
        np.testing.assert_allclose(found.errors[value], expected, rtol=1e-3, atol=1e-6)
    turns = np.stack([each["phase"] for each in alone]) - found.values["phase"]
    near_by = (turns + np.pi) % (2 * np.pi) - np.pi
    np.testing.assert_allclose(found.errors["phase"], jackknife(near_by), rtol=3e-4, atol=1e-4)
    assert (found.errors["phase"] < 6).all()


def test_what_does_not_fit():
    run = describe_run("demo-gpt2", windows=5, context=64)
    spectrum, kernel = find("rotary-spectrum"), find("equivariant-kernel")
    with refused("bands that grow"):
        spectrum.needs(run, spectrum.params(short=100, long=50))
    assert spectrum.params(short=100).longest(64) == 100
    with refused("longer than the 32 keys"):
        spectrum.needs(run.model_copy(update={"context": 32}), spectrum.params(skip=32))
    with refused(r"from 4 .* to 63, got 64"):
        kernel.needs(run, kernel.params(query=64))


def test_learned_positions_are_refused_at_once(tmp_path):
    engine = pk.Engine(pk.Store(tmp_path))
    for name in ("rotary-spectrum", "equivariant-kernel", "place-and-content", "longer-contexts"):
        with refused("'demo-gpt2' has learned positions", NotInModel):
            pk.show(name, "demo-gpt2", engine=engine, windows=20, context=64)
    assert engine.worker_pid is None
    engine.store.close()


def test_angles_that_nobody_sees(tmp_path):
    from tests.support.builders.families import FAMILY_MODELS

    path = FAMILY_MODELS["gptj"].build(tmp_path / "gptj")
    ids = builders.random_ids(2, 11, seed=3).numpy()
    gathered = pk.run_pass(loaded(path), ids, gather=("rotary",))
    with refused("'gptj' turn queries and keys inside"):
        analyse("rotary-spectrum", gathered)
