"""What all experiments on random tokens share: batches, seeds, memory, progress, refusals."""

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch

from poskernel_core.analyses.induction.spec import (
    InductionRecency,
    InductionScores,
    RecencyPatterns,
)
from poskernel_core.analyses.position_vs_token.spec import PositionVsToken, PositionZero
from poskernel_core.analyses.random_tokens import params
from poskernel_core.analyses.random_tokens.spec import RandomAttention
from poskernel_core.engine.engine import describe_run
from poskernel_core.forward import loading
from poskernel_core.models import catalog
from tests.analyses.interventions.test_switches import perform, subject_of
from tests.support.refusals import refused

SMALL = {
    "recency": (InductionRecency, {"length": 9, "equalise_norms": True}),
    "patterns": (RecencyPatterns, {"length": 9, "second": 5, "ablate": "L1H2"}),
    "scores": (InductionScores, {"period": 5}),
    "attention": (RandomAttention, {"length": 7, "equalise_norms": True}),
    "parts": (PositionVsToken, {"length": 7}),
    "zero": (PositionZero, {"length": 7}),
}


@pytest.mark.parametrize("name", SMALL)
def test_batches_and_seeds(model_dirs, monkeypatch, name):
    monkeypatch.setattr("poskernel_core.analyses.random_tokens.experiment.sampled.MEASURED", 7)
    experiment, params = SMALL[name]
    path, params = model_dirs["gpt2"], {**params, "samples": 7}

    whole, cut, other = (
        perform(experiment, subject_of(path, **each), **params)
        for each in ({}, {"batch": 3}, {"seed": 4})
    )
    for mine, theirs in ((whole.values, cut.values), (whole.errors, cut.errors)):
        for key in mine:
            np.testing.assert_allclose(mine[key], theirs[key], atol=5e-6, rtol=5e-6)
    assert whole.errors
    for key, error in whole.errors.items():
        if np.nanmax(error) > 1e-6:
            assert np.nanmax(np.abs(whole.values[key] - other.values[key])) > 1e-6


def alive():
    """Bytes of all torch tensors that are alive, those seen through NumPy arrays included."""
    storages = {}
    for each in gc.get_objects():
        if type(each) is torch.Tensor:
            storages[each.untyped_storage().data_ptr()] = each.untyped_storage().nbytes()
    return sum(storages.values())


class Enough(Exception):
    """Ends an experiment."""


@pytest.mark.parametrize("name", ["attention", "parts"])
def test_memory_does_not_grow(model_dirs, monkeypatch, name):
    """In the last of eighteen forward passes, as much is alive as twelve passes before."""
    experiment, params = SMALL[name][0], {**SMALL[name][1]}
    params.pop("equalise_norms", None)
    subject, lives, calls = subject_of(model_dirs["gpt2"], batch=2), [], []
    run = loading.LoadedModel.run

    def counted(self, *args, **kwargs):
        calls.append(len(args[0]))
        if len(calls) in (6, 18):
            lives.append(alive())
        if len(calls) == 18:
            raise Enough
        return run(self, *args, **kwargs)

    monkeypatch.setattr(loading.LoadedModel, "run", counted)
    with pytest.raises(Enough):
        perform(experiment, subject, samples=36, **params)

    assert [2] * 18 == calls
    patterns = 12 * 3 * 5 * 7 * 7 * 4  # of 6 batches, in single precision
    assert lives[1] - lives[0] < patterns / 3


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("attention", {"ablate": "head 3"}, "written L<layer>H<head>"),
        ("recency", {"ablate": "L0H5"}, "L0H0 to L2H4"),
        ("recency", {"first": 5}, "need 10 tokens or more, got 9"),
        ("patterns", {"second": 3, "candidates": 3, "first": 1}, "position 5 to 6, got 3"),
        ("attention", {"length": 4000}, "747 tokens or fewer"),
        ("scores", {"period": 293}, "293 different tokens and the model has 292"),
    ],
)
def test_refused(model_dirs, name, params, words):
    experiment, usual = SMALL[name]
    with refused(words):
        perform(experiment, subject_of(model_dirs["gpt2"]), **{**usual, **params})


@pytest.mark.parametrize("name", ["recency", "scores", "parts"])
def test_progress(model_dirs, name, monkeypatch):
    monkeypatch.setattr("poskernel_core.analyses.random_tokens.experiment.sampled.MEASURED", 7)
    experiment, params = SMALL[name]
    seen, subject = [], subject_of(model_dirs["llama"], batch=3)

    experiment().perform(
        subject, {}, experiment.params(samples=7, **params), lambda *step: seen.append(step)
    )

    done = [at for at, _ in seen]
    assert 0 == done[0]
    assert done == sorted(set(done))
    assert {done[-1]} == {total for _, total in seen}
    assert {3, 1} >= set(np.diff(done).tolist())


def test_settled(model_dirs):
    run = describe_run(str(model_dirs["gpt2"]), windows=7, seed=5, destination=" the")
    lengths = {"recency": 9, "patterns": 9, "scores": 11, "attention": 7, "parts": 7, "zero": 7}
    for name, length in lengths.items():
        experiment, params = SMALL[name][0](), SMALL[name][0].params(samples=13, **SMALL[name][1])
        canonical = experiment.canonical(run, params)
        assert (length, 13, 5) == (canonical.context, canonical.windows, canonical.seed)
        assert canonical.start_token == (name != "zero")
        assert canonical.destination is None
        assert {} == experiment.needs(canonical, params)
    with refused("need 10 tokens"):
        InductionRecency().canonical(run, InductionRecency.params(length=9, first=5))


def test_position_zero_without_a_start_token(model_dirs):
    subject = subject_of(model_dirs["gpt2"])
    subject = replace(subject, source=replace(subject.source, start=None), start_token=True)
    found = perform(PositionZero, subject, samples=3)
    known = perform(PositionZero, subject_of(model_dirs["gpt2"]), samples=3)

    for name, value in found.values.items():
        assert np.isnan(value[0]).all()
        assert value.shape == known.values[name].shape
        np.testing.assert_array_equal(np.isnan(value[1:]), np.isnan(known.values[name][1:]))


@pytest.mark.parametrize(
    ("layers", "width", "expected"),
    [
        (10, 316, 2000),  # 10 × 316² = 998,560
        (10, 317, 1000),  # 10 × 317² = 1,004,890
        (32, 4096, 100),  # Llama 8B: never fewer than the fewest offered
    ],
)
def test_large_models_begin_with_fewer(layers, width, expected):
    """Two thousand millions over layers times squared width, down to a number that is offered."""
    geometry = replace(catalog.locate("demo-gpt2").geometry, n_layers=layers, d_model=width)
    assert expected == params.first_samples(params.CLEAR_SAMPLES, geometry)
    assert min(params.SAMPLES, expected) == params.first_samples(params.SAMPLES, geometry)
