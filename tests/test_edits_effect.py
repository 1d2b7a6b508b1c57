"""Edits take effect in every architecture, and end with their run."""

import numpy as np
import pytest
import torch

from poskernel_core import catalog, models
from poskernel_core.edits import Edit
from poskernel_core.experiments import changes
from tests import builders
from tests.test_builders import SHAPES
from tests.truth import truth_of

ALL = pytest.mark.parametrize("name", builders.ARCHITECTURES)

STAGES = pytest.mark.parametrize("stage", ["scores", "pattern"])

LENGTH = 23


@pytest.fixture(scope="module")
def loaded(model_dirs):
    """Every tiny model."""
    return {
        name: models.load(catalog.locate(str(path)), "cpu") for name, path in model_dirs.items()
    }


@pytest.fixture(scope="module")
def ids():
    """Two windows of random tokens."""
    return builders.random_ids(2, LENGTH, seed=3)


@ALL
def test_clean_run_is_the_model(model_dirs, loaded, name):
    """Logits and patterns are those of plain transformers, over the whole context."""
    windows, seen = builders.random_ids(2, SHAPES[name][2], seed=7), []
    truth = truth_of(model_dirs[name], windows.numpy())

    found = loaded[name].run(windows, observe=lambda _layer, pattern: seen.append(pattern))

    np.testing.assert_allclose(found, truth.logits, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(torch.stack(seen), np.stack(truth.attentions), atol=1e-5)


@ALL
@STAGES
@pytest.mark.parametrize("layer", [0, 1])
def test_attention_edits_take_effect(loaded, ids, name, stage, layer):
    """In every architecture, in local and global layers, from the first changed row on."""
    patterns = {}
    edit = changes.BlindPredecessor(7, (layer,), stage)
    clean = loaded[name].run(ids, observe=lambda at, p: patterns.update({("clean", at): p}))
    found = loaded[name].run(ids, edit, lambda at, p: patterns.update({("cut", at): p}))

    np.testing.assert_allclose(found[:, :7], clean[:, :7], atol=1e-4)
    assert (found[:, 7] - clean[:, 7]).abs().amax(dim=-1).min() > 1e-3
    cut, whole = patterns["cut", layer], patterns["clean", layer]
    for n in range(1, LENGTH):
        rest = whole[:, :, n].clone()
        if n % 7 == 0:
            rest[..., n - 1] = 0
            rest = rest / rest.sum(-1, keepdim=True) if stage == "scores" else rest
        np.testing.assert_allclose(cut[:, :, n], rest, atol=1e-5)


@ALL
@pytest.mark.parametrize("layer", [0, 1])
def test_a_head_without_attention_is_silent(loaded, ids, name, layer):
    """A pattern of zeros and an output of zeros come to the same, and to another text."""

    class Blank(Edit):
        def pattern(self, at, pattern):
            pattern = pattern.clone()
            pattern[:, 2] *= 0 if at == layer else 1
            return pattern

    blank, clean = loaded[name].run(ids, Blank()), loaded[name].run(ids)
    silent = loaded[name].run(ids, changes.SilencedHeads([(layer, 2)]))

    np.testing.assert_allclose(blank, silent, atol=1e-5)
    assert (silent - clean).abs().max() > 1e-2


def test_an_edit_ends_with_its_run(loaded, ids):
    """A failing edit is taken off, and the next run is clean."""

    class Broken(Edit):
        def pattern(self, layer, pattern):
            raise ZeroDivisionError

    clean = loaded["gpt2"].run(ids)
    with pytest.raises(ZeroDivisionError):
        loaded["gpt2"].run(ids, Broken())

    assert torch.equal(clean, loaded["gpt2"].run(ids))
