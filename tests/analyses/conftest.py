"""Models and texts that several topics ask."""

import pytest

import poskernel_core as pk
from poskernel_core.analyses.helix.formulas import STREAM_SUMS
from poskernel_core.data.made import doubled, repeated_windows
from tests.support import Made, builders
from tests.support.builders import contextual
from tests.support.passes import loaded
from tests.support.truth import truth_of


@pytest.fixture(scope="session")
def paths(model_dirs, tmp_path_factory):
    """Directories of all tiny models, those of `builders.contextual` among them."""
    root = tmp_path_factory.mktemp("contextual")
    return model_dirs | {
        "additive": contextual.additive(root / "additive", contextual.CONTENT),
        "grouped": contextual.grouped(root / "grouped"),
    }


@pytest.fixture(scope="session")
def repeating():
    """Three texts of 31 tokens behind a start token, some of which say a token twice in a row."""
    ids = builders.random_ids(3, 31, seed=11).numpy()
    ids[:, 0] = builders.START
    return doubled(ids, 7, first=1)


@pytest.fixture(scope="session")
def truths(model_dirs, repeating):
    """What plain transformers computes on them, by model."""
    return Made(lambda name: truth_of(model_dirs[name], repeating))


@pytest.fixture(scope="session")
def streams(model_dirs):
    """The mean stream of GPT-2 over repeated tokens, as interventions ask for it."""
    windows = repeated_windows(293, context=41, windows=3, avoid=0)
    model = loaded(model_dirs["gpt2"])
    return {"repeated": pk.run_pass(model, windows, start_token=False, gather=STREAM_SUMS)}


@pytest.fixture
def few_measured(monkeypatch, request):
    """Norms are measured on as many sequences as a module runs, which plain loops can follow."""
    place = "poskernel_core.analyses.random_tokens.experiment.sampled.MEASURED"
    monkeypatch.setattr(place, request.module.SAMPLES)
