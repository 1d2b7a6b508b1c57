"""The helix: on a model whose positions are one, on random models by the oracles; its runs."""

import math

import numpy as np
import pytest
import torch

from poskernel_core.analyses.helix import formulas
from poskernel_core.analyses.helix.formulas import STREAM_SUMS, far_out, repeated_run
from poskernel_core.analyses.helix.spec import Helix, HelixParams
from poskernel_core.common.specs import Execution, RunSpec
from poskernel_core.data.made import repeated_windows
from poskernel_core.engine.engine import describe_run
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.passes.prepare import prepare
from tests.support import builders
from tests.support import oracles_positions as op
from tests.support import passes as small
from tests.support.raw import analyse
from tests.support.refusals import refused
from tests.support.truth import truth_of

T, THETA, TOKENS = 53, 20.0, 5
CONTEXT = 31
ROWS = {
    "gpt2": lambda model: model.transformer.wpe.weight,
    "opt": lambda model: model.model.decoder.embed_positions.weight[2:],
}


def gather(path, windows, start_token=False, batch=None):
    return small.gather(path, windows, start_token, STREAM_SUMS, batch)


def test_positions_far_from_all_others():
    """One point at 81 among points 10 from the middle, not one at 80; none where all are alike."""
    ring = [[10.0, 0.0], [-10.0, 0.0], [0.0, 10.0], [0.0, -10.0]]
    assert [2] == far_out(np.array([*ring[:2], [0.0, 81.0], *ring[2:], [0.0, -10.0]]))
    assert [] == far_out(np.array([*ring[:2], [0.0, 80.0], *ring[2:], [0.0, -10.0]]))
    assert [] == far_out(np.array(ring))


def same_up_to_sign(found, expected, atol):
    """Projections agree, each component up to its sign."""
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=atol)


@pytest.fixture(scope="module")
def helix(constructed):
    return analyse("helix", constructed, tokens=TOKENS)


@pytest.fixture(scope="module")
def repeated():
    return repeated_windows(293, context=CONTEXT, windows=TOKENS, avoid=0, seed=7)


@pytest.fixture(scope="module")
def passes(model_dirs, repeated):
    return {name: gather(model_dirs[name], repeated, batch=2) for name in ROWS}


def extended(path, windows, first=0):
    residuals = truth_of(path, windows).residuals
    return [op.extended_positions(layer[:, first:].tolist()) for layer in residuals]


def test_a_helix(helix):
    """Layer 0 is turned by 20 degrees along every direction; no token matters."""
    expected = [*builders.helix_truth(), *[0.0] * 6]
    for shares in helix.values["explained_variance"]:
        np.testing.assert_allclose(shares, expected, atol=1e-6)
    turns = THETA * np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]])
    np.testing.assert_allclose(
        helix.values["angles_residual"], np.repeat(turns[..., None], 3, -1), atol=1e-2
    )
    np.testing.assert_allclose(helix.values["token_spread"], 0, atol=1e-3)


@pytest.mark.parametrize("k", [1, 4])
def test_angles_of_other_subspaces(constructed, k):
    angles = analyse("helix", constructed, subspace=k).values["angles_residual"]
    np.testing.assert_allclose(angles[0, 1], [THETA] * k, atol=1e-2)
    np.testing.assert_allclose(angles[1, 2], [0] * k, atol=1e-2)


def test_projection_is_a_curve_of_the_helix(helix):
    """The coordinates on their principal components; from layer 1 on longer by 1 / cos(theta)."""
    rows = op.centred(builders.helix_coordinates())
    components = op.pca(rows, 3)[1]
    points = np.sqrt(2) * np.array([[np.dot(row, c) for c in components] for row in rows])
    longer = 1 / math.cos(math.radians(THETA))
    for layer, factor in enumerate((1, longer, longer)):
        same_up_to_sign(helix.values["projection"][layer], factor * points, atol=1e-4)


def test_signs_agree_from_layer_to_layer(helix):
    values = helix.values
    for name in ("projection", "on_embedding", "joint"):
        overlap = (values[name][1:] * values[name][:-1]).sum(axis=1)
        assert (overlap > 0).all(), name
    for layer in range(3):
        assert ((values["projection"][layer] * values["joint"][layer]).sum(axis=0) > 0).all()


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_the_weight(model_dirs, passes, name):
    """At layer 0, `X` is the model's own `W_pos` minus its mean; OPT's begins at row 2."""
    weight = ROWS[name](builders.hf_eager_model(model_dirs[name])).detach()[:CONTEXT].numpy()
    arrays = passes[name].layer(0)

    np.testing.assert_allclose(arrays["position_rows"], weight, atol=1e-6)
    found = arrays["mean_residuals"] - arrays["mean_residuals"].mean(axis=0)
    np.testing.assert_allclose(found, weight - weight.mean(axis=0), atol=1e-5)
    rows = op.centred(weight.tolist())
    shares, components = op.pca(rows, 3)
    result = analyse("helix", passes[name])
    np.testing.assert_allclose(result.values["explained_variance"][0][:3], shares, atol=1e-5)
    same_up_to_sign(result.values["projection"][0], np.array(rows) @ np.transpose(components), 1e-3)


@pytest.mark.parametrize("leave_out", [0, 3])
def test_against_the_oracles(model_dirs, passes, repeated, leave_out):
    path = model_dirs["gpt2"]
    rows = extended(path, repeated, leave_out)
    values = analyse("helix", passes["gpt2"], leave_out=leave_out, subspace=2, far=1.3).values

    axes = [np.transpose(op.pca(X, 3)[1]) for X in rows]
    for layer, X in enumerate(rows):
        first, here, embedding = np.array(rows[0]), np.array(X), axes[0]
        both = np.transpose(op.pca(rows[0] + X, 3)[1])
        expected = {
            "projection": here @ axes[layer],
            "on_embedding": here @ embedding,
            "embedding_on_layer": first @ axes[layer],
            "joint": here @ both,
            "embedding_joint": first @ both,
        }
        for name, points in expected.items():
            same_up_to_sign(values[name][layer], points, atol=5e-3)
        np.testing.assert_allclose(values["explained_variance"][layer], op.pca(X, 10)[0], atol=1e-5)
        assert op.far_share(X, 1.3) == pytest.approx(float(values["far_share"][layer]), abs=2e-3)
        for size in (5, 10, 20, 50, 100):
            means = op.group_means(values["projection"][layer].tolist(), size)
            np.testing.assert_allclose(values[f"group_{size}"][layer], means, atol=1e-6)
        for other, Y in enumerate(rows[:layer]):
            angles = op.canonical_angles(X, Y, 2)
            np.testing.assert_allclose(values["angles_residual"][layer, other], angles, atol=0.05)


def test_angles_in_position_space(model_dirs, passes, repeated):
    model, seen = builders.hf_eager_model(model_dirs["gpt2"]), []
    for block in model.transformer.h:
        block.ln_1.register_forward_hook(lambda _m, _i, out: seen.append(out.double()))
    with torch.inference_mode():
        model(torch.from_numpy(repeated))
    rows = [ROWS["gpt2"](model)[:CONTEXT].tolist()]
    rows += [layer.mean(dim=0).tolist() for layer in seen[1:]]

    angles = analyse("helix", passes["gpt2"]).values["angles_position"]

    for a, b in ((0, 1), (0, 2), (1, 2)):
        expected = op.canonical_angles_left(rows[a], rows[b], 3)
        np.testing.assert_allclose(angles[a, b], expected, atol=0.05)
        np.testing.assert_allclose(angles[a, b], angles[b, a], atol=1e-5)
    np.testing.assert_allclose(angles[[0, 1, 2], [0, 1, 2]], 0, atol=1e-3)


def test_spread_over_tokens(model_dirs, passes, repeated):
    residuals = truth_of(model_dirs["gpt2"], repeated).residuals
    expected = [op.token_spread(layer.tolist()) for layer in residuals]
    for first in (0, 4):
        found = analyse("helix", passes["gpt2"], leave_out=first).values["token_spread"]
        np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-3)
        assert found[0] < 2e-3
        assert found[1:].min() > 0.05


POS = 11


def test_repeated_run():
    """It depends on the model and the context alone; texts keep the run's corpus and windows."""
    model, repeated = {"model": {"name": "m"}, "context": POS}, formulas.repeated_run
    one = RunSpec(corpus={"name": "a"}, windows=3, positions=(3,), destination=" the", **model)
    other = RunSpec(corpus={"name": "b"}, windows=7, positions=(7,), start_token=False, **model)

    assert repeated(one, 5) == repeated(other, 5) != repeated(one, 6)
    assert Helix().canonical(one, HelixParams(tokens=5)) == repeated(other, 5)
    assert (5, False) == (repeated(one, 5).windows, repeated(one, 5).start_token)
    texts = [Helix().canonical(run, HelixParams(prompts="texts")) for run in (one, other)]
    assert [("a", 3), ("b", 7)] == [(run.corpus.name, run.windows) for run in texts]


def test_over_texts(model_dirs):
    windows = builders.random_ids(TOKENS, CONTEXT, seed=5).numpy()
    windows[:, 0] = builders.START

    result = analyse("helix", gather(model_dirs["llama"], windows, True), prompts="texts")

    assert list(range(1, CONTEXT)) == result.coordinates["pos"].tolist()
    assert [1, 11, 21] == result.coordinates["group_of_10"].tolist()
    for layer, X in enumerate(extended(model_dirs["llama"], windows, 1)):
        shares = result.values["explained_variance"][layer][:3]
        np.testing.assert_allclose(shares, op.pca(X, 3)[0], atol=1e-4)


def test_no_helix_of_repeated_tokens_for_rotary_positions(model_dirs):
    located = catalog.locate(str(model_dirs["llama"]))
    run = repeated_run(describe_run(str(model_dirs["llama"]), context=CONTEXT), TOKENS)
    with refused("rotary.*choose a model with learned positions"):
        prepare(run, Execution(device="cpu"), located, load_tokenizer(located))
