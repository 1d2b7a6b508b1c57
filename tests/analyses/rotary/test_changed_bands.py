"""Bands of wavelengths frozen and removed inside a model: by plain loops, and where it is known."""

import math

import numpy as np
import pytest
import torch

import poskernel_core as pk
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.rotary.bands import ChangedBands, ChangedBandsParams
from poskernel_core.analyses.rotary.experiment import edits_of
from poskernel_core.forward.edits import Chain, Edit
from poskernel_core.forward.interventions import ChangedBand, RemovedEmbeddings
from poskernel_core.forward.readout import measure
from tests.support import builders, oracles
from tests.support.builders.rotary import scaled
from tests.support.oracles_rotary import turned_of
from tests.support.passes import loaded
from tests.support.raw import of_all_texts
from tests.support.refusals import refused
from tests.support.truth import Recorder

CONTEXT, TEXTS = 29, 3
ALL = (0.0, math.inf)


@pytest.fixture(scope="module")
def models(model_dirs, tmp_path_factory):
    yarn = scaled("yarn")(tmp_path_factory.mktemp("scaled") / "yarn")
    return {**model_dirs, "yarn": yarn}


def model_and_cells(path):
    model = loaded(path)
    return model, [*np.ndindex(model.geometry.n_layers, model.geometry.n_heads)]


def first_pattern(model, ids, edit):
    seen = Recorder(patterns=True)
    model.run(ids, edit, [seen], keep=0)
    return seen.blocks[0].pattern.numpy()


@pytest.mark.parametrize(
    ("name", "treatment"), [("llama", "removed"), ("gpt_neox", "frozen"), ("yarn", "removed")]
)
def test_patterns_in_plain_loops(models, name, treatment):
    """The changed head's rows of layer 0 from unrotated projections; other heads as they were."""
    model, ids = loaded(models[name]), builders.random_ids(2, CONTEXT, seed=21)
    truth, head, band = turned_of(models[name], ids.numpy()), 3, (10.0, 100.0)
    scale = pk.run_pass(model, ids.numpy(), gather=("keys",)).header.scales[0]
    found = first_pattern(model, ids, ChangedBand([(0, head)], *band, treatment))
    clean = first_pattern(model, ids, Edit())

    others = [each for each in range(clean.shape[1]) if each != head]
    np.testing.assert_array_equal(clean[:, others], found[:, others])
    inside = [band[0] < 2 * math.pi / theta <= band[1] for theta in truth.speed]
    assert 0 < sum(inside) < len(inside)
    rest = [part[1, head].astype(float) for part in truth.rest[0]]
    for n in (0, 7, CONTEXT - 1):
        scores = []
        for i in range(n + 1):
            score = float(rest[0][n] @ rest[1][i])
            for pair, theta in enumerate(truth.speed):
                both = truth.queries[0][1, head, n, pair]
                both *= np.conj(truth.keys[0][1, head, i, pair]) * truth.factor**2
                turn = 0 if inside[pair] and treatment == "frozen" else theta * (n - i)
                kept = not (inside[pair] and treatment == "removed")
                score += kept * float((both * np.exp(1j * turn)).real)
            scores.append(scale * score)
        np.testing.assert_allclose(found[1, head, n, : n + 1], oracles.softmax(scores), atol=2e-5)


def test_everything_frozen_is_a_model_without_positions(models):
    """All bands of all heads not turned: as if all tokens stood at position 0."""
    model, cells = model_and_cells(models["gpt_neox"])
    ids = builders.random_ids(2, CONTEXT, seed=22)
    frozen = model.run(ids, ChangedBand(cells, *ALL, "frozen"))
    without = model.run(ids, RemovedEmbeddings("positions"))
    torch.testing.assert_close(frozen, without, atol=2e-4, rtol=1e-4)
    assert (frozen - model.run(ids, Edit())).abs().max() > 0.1


def test_bands_add_up(models):
    model, cells = model_and_cells(models["yarn"])
    ids = builders.random_ids(2, CONTEXT, seed=23)
    parts = [
        ChangedBand([cell], *band, "removed")
        for cell in cells
        for band in ((0, 50), (50, math.inf))
    ]
    together = model.run(ids, ChangedBand(cells, *ALL, "removed"))
    torch.testing.assert_close(model.run(ids, Chain(parts)), together, atol=2e-4, rtol=1e-4)
    for nothing in (ChangedBand([], *ALL, "removed"), ChangedBand(cells, 1e9, 1e10, "frozen")):
        assert torch.equal(model.run(ids, nothing), model.run(ids, Edit()))


def subject_of(model, ids):
    return ExperimentContext(model, ids, [], lambda ids: [], start_token=True)


def performed(model, ids, **params):
    asked = ChangedBandsParams(**params)
    return of_all_texts(
        ChangedBands().perform(subject_of(model, ids), {}, asked, lambda done, total: None)
    )


def test_the_experiment(models):
    model, ids = loaded(models["llama"]), builders.random_ids(TEXTS, CONTEXT, seed=24).numpy()
    found = performed(model, ids, head="L1H2", layers="1-2", short=20.0)
    edits = edits_of(subject_of(model, ids), ChangedBandsParams(layers="1-2", short=20.0))

    assert (7,) == found.values["loss"].shape
    cells = [(layer, head) for layer in (1, 2) for head in range(6)]
    assert ChangedBand(cells, 20.0, float(CONTEXT), "removed") == edits[5]
    for place in (0, 4):
        runs = [
            [measure(model, ids[[k]], each, start_token=True, cell=(1, 2)) for k in range(TEXTS)]
            for each in (edits[0], edits[place])
        ]  # fmt: skip
        loss = [np.array([np.nanmean(run.loss) for run in row]) for row in runs]
        rise = loss[1] - loss[0]
        assert found.values["loss"][place] == pytest.approx(loss[1].mean(), rel=1e-6)
        assert found.values["loss_change"][place] == pytest.approx(rise.mean(), abs=1e-9)
        assert found.errors["loss_change"][place] == pytest.approx(
            rise.std(ddof=1) / math.sqrt(TEXTS), abs=1e-9
        )
        mass = np.mean([run.previous_mass for run in runs[1]], axis=0)
        np.testing.assert_allclose(found.values["previous_mass"][place], mass)
        clean = np.mean([run.previous_mass for run in runs[0]], axis=0)
        change = found.values["previous_mass_change"][place]
        np.testing.assert_allclose(change, mass - clean, atol=1e-12)
        apart = [
            0.5 * np.abs(new.pattern.astype(float) - old.pattern).sum(axis=-1).mean()
            for old, new in zip(*runs, strict=True)
        ]
        assert found.values["pattern_distance"][place] == pytest.approx(np.mean(apart), abs=1e-9)
        for back in (0, 2, CONTEXT - 2):
            pairs = [
                np.mean([run.pattern[n, n - back] for n in range(1 + back, CONTEXT)])
                for run in runs[1]
            ]
            assert found.values["profile"][place, back] == pytest.approx(np.mean(pairs), abs=1e-6)
        assert np.isnan(found.values["profile"][place, -1])
    assert 0 == found.values["pattern_distance"][0] == found.errors["loss_change"][0]


def test_what_is_changed_follows_the_words(models):
    model, every = model_and_cells(models["llama"])
    subject = subject_of(model, builders.random_ids(2, 5, seed=25).numpy())

    def cells(**params):
        return [*edits_of(subject, ChangedBandsParams(short=3.0, **params))[1].cells]

    assert every == cells()
    assert [(0, 1), (2, 0)] == cells(heads="L2H0, L0H1", layers="1")
    assert [(1, head) for head in range(6)] == cells(layers="1")
    for wrong, told in (({"heads": "L9H0"}, "L2H5"), ({"layers": "7"}, "0 to 2")):
        with refused(told):
            cells(**wrong)
