"""What all experiments on random tokens share: batches, seeds, memory, progress, refusals."""

import dataclasses
import gc

import numpy as np
import pytest
import torch

from poskernel_core.analyses.induction.spec import (
    InductionRecency,
    InductionScores,
    RecencyPatterns,
)
from poskernel_core.analyses.position_vs_token.spec import PositionVsToken, PositionZero
from poskernel_core.analyses.random_tokens.spec import RandomAttention
from poskernel_core.engine.engine import describe_run
from poskernel_core.forward import loading
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
EXPERIMENTS = list(SMALL)


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("model", ["gpt2", "mistral"])
def test_batches_and_seeds(model_dirs, monkeypatch, name, model):
    monkeypatch.setattr("poskernel_core.analyses.random_tokens.experiment.sampled.MEASURED", 17)
    experiment, params = SMALL[name]
    params = {**params, "samples": 13}
    path = model_dirs[model]

    whole = perform(experiment, subject_of(path), **params)

    for batch in (1, 3):
        cut = perform(experiment, subject_of(path, batch=batch), **params)
        for mine, theirs in ((whole.values, cut.values), (whole.errors, cut.errors)):
            for key in mine:
                np.testing.assert_allclose(mine[key], theirs[key], atol=5e-6, rtol=5e-6)
    again = perform(experiment, subject_of(path), **params)
    other = perform(experiment, subject_of(path, seed=4), **params)
    for key, error in whole.errors.items():
        np.testing.assert_array_equal(whole.values[key], again.values[key])
        np.testing.assert_array_equal(error, again.errors[key])
        if np.nanmax(error) > 1e-6:
            assert np.nanmax(np.abs(whole.values[key] - other.values[key])) > 1e-6
    assert whole.errors
    assert whole.params == {**experiment.params(**params).model_dump()}


def alive():
    """Bytes of all torch tensors that are alive, those seen through NumPy arrays included."""
    storages = {}
    for each in gc.get_objects():
        if type(each) is torch.Tensor:
            storages[each.untyped_storage().data_ptr()] = each.untyped_storage().nbytes()
    return sum(storages.values())


class Enough(Exception):
    """Ends an experiment."""


@pytest.mark.parametrize("name", SMALL)
def test_memory_does_not_grow(model_dirs, monkeypatch, name):
    """In the last of thirty forward passes, as much is alive as 24 passes before."""
    experiment, params = SMALL[name][0], {**SMALL[name][1]}
    params.pop("equalise_norms", None)
    subject, lives, calls = subject_of(model_dirs["gpt2"], batch=2), [], []
    run = loading.LoadedModel.run

    def counted(self, *args, **kwargs):
        calls.append(len(args[0]))
        if len(calls) in (6, 30):
            lives.append(alive())
        if len(calls) == 30:
            raise Enough
        return run(self, *args, **kwargs)

    monkeypatch.setattr(loading.LoadedModel, "run", counted)
    with pytest.raises(Enough):
        perform(experiment, subject, samples=60, **params)

    assert [2] * 30 == calls
    patterns = 24 * 3 * 5 * 7 * 7 * 4  # of 12 batches, in single precision
    assert lives[1] - lives[0] < patterns / 3


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("attention", {"ablate": "L0H1, L3H0"}, "L0H0 to L2H4"),
        ("attention", {"ablate": "head 3"}, "written L<layer>H<head>"),
        ("attention", {"ablate": ","}, "such as L0H3, L1H4, got none"),
        ("recency", {"ablate": "L0H5"}, "L0H0 to L2H4"),
        ("recency", {"first": 5}, "need 10 tokens or more, got 9"),
        ("patterns", {"second": 8}, "position 4 to 6, got 8"),
        ("patterns", {"second": 3, "candidates": 3, "first": 1}, "position 5 to 6, got 3"),
        ("parts", {"length": 4000}, "528 tokens or fewer"),
        ("attention", {"length": 4000}, "747 tokens or fewer"),
        ("scores", {"period": 293}, "293 different tokens and the model has 292"),
    ],
)
def test_refused(model_dirs, name, params, words):
    experiment, usual = SMALL[name]
    with refused(words):
        perform(experiment, subject_of(model_dirs["gpt2"]), **{**usual, **params})


@pytest.mark.parametrize("name", EXPERIMENTS)
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


@pytest.mark.parametrize("start", [True, False])
def test_settled(model_dirs, start):
    run = describe_run(
        str(model_dirs["gpt2"]), windows=7, start_token=start, seed=5, destination=" the"
    )
    lengths = {"recency": 9, "patterns": 9, "scores": 10 + start, "attention": 7, "parts": 7}
    for name, length in {**lengths, "zero": 7}.items():
        experiment, params = SMALL[name][0](), SMALL[name][0].params(samples=13, **SMALL[name][1])
        canonical = experiment.canonical(run, params)
        assert (length, 13, 5) == (canonical.context, canonical.windows, canonical.seed)
        assert canonical.start_token == (start and name != "zero")
        assert canonical.destination is None
        assert {} == experiment.needs(canonical, params)
    with refused("need 10 tokens"):
        InductionRecency().canonical(run, InductionRecency.params(length=9, first=5))


def test_nothing_random_left(model_dirs):
    found = perform(
        RecencyPatterns, subject_of(model_dirs["gpt2"]), samples=3, length=6, first=1, second=3
    )
    assert [0, 2, 3, 2, 4, 2] == found.values["role"].tolist()
    assert np.isfinite(found.values["pattern"]).all()


def test_position_zero_without_a_start_token(model_dirs):
    subject = subject_of(model_dirs["gpt2"])
    subject = dataclasses.replace(
        subject, source=dataclasses.replace(subject.source, start=None), start_token=True
    )
    found = perform(PositionZero, subject, samples=3)
    known = perform(PositionZero, subject_of(model_dirs["gpt2"]), samples=3)

    for name, value in found.values.items():
        assert np.isnan(value[0]).all()
        assert value.shape == known.values[name].shape
        np.testing.assert_array_equal(np.isnan(value[1:]), np.isnan(known.values[name][1:]))
