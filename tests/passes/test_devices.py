"""Whether any tensor forgets its device: everything runs once while the default one is `meta`.

A tensor without a device lands on the default one. With the model on the CPU and `meta` as default,
such a tensor meets the model's and fails, as it would beside a model on a GPU.
"""

import numpy as np
import pytest
import torch

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES, Composition
from poskernel_core.analyses.bag.params import BagParams
from poskernel_core.api import build_request
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.engine.plan import make_plan
from poskernel_core.forward import interventions
from poskernel_core.forward.edits import Chain, Edit
from poskernel_core.models import catalog
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.statistics import STATISTICS
from poskernel_core.storage.store import Store
from tests.support import builders
from tests.support.builders.families import FAMILY_MODELS
from tests.support.stages import carried_out

CONTEXT, WINDOWS, QUERY = 29, 7, 20
FEW = {
    "samples": 3, "passages": 3, "query": QUERY, "first_windows": 3, "tokens": 5, "length": 9,
    "period": 7, "second": 5, "components": 3, "random_length": 9,
}  # fmt: skip
OWN = {
    "longer-contexts": {"length": 16},
    "position-sources": {"first_windows": 10},
    "head-position-sources": {"first_windows": 10},
    "score-components": {"text": "the word and the word and the word and the word"},
    "stages": {"text": "the word"},
    "own-text": {"text": "the word and the word"},
    "own-text-head": {"text": "the word and the word"},
    "intervention": {"text": "the word and the word", "change": "ablate", "heads": "L0H1"},
    "extended-embedding": {"word": " the"},
    "word-neurons": {"words": "the"},
}
ASKED = {
    name: "gpt2" if question.fits_scheme("learned") else "llama"
    for name, question in ANALYSES.items()
    if not isinstance(question, Composition)
}


@pytest.fixture
def forgetful():
    """`meta` as the device of tensors that are made without one."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A store, and the models that are loaded before the default device changes."""
    folder = tmp_path_factory.mktemp("devices")
    builders.mini_corpus(folder)
    store = Store(folder / "store")
    yield WorkerContext(store), CorpusSpec(name=str(folder / "mini.txt"))
    store.close()


def answered(shared, corpus, analysis, model):
    """The result of a question that is asked in this process."""
    fields = ANALYSES[analysis].params.model_fields
    params = {name: value for name, value in FEW.items() if name in fields}
    params |= {"heads": "L0H0, L0H1"} if issubclass(ANALYSES[analysis].params, BagParams) else {}
    chosen = {name: each for name, each in (("head", "L1H1"), ("query", QUERY)) if name in fields}
    request, _ = build_request(
        analysis, str(model), params=params | OWN.get(analysis, {}),
        corpus=corpus, context=CONTEXT, windows=WINDOWS, **chosen,
    )  # fmt: skip
    return carried_out(shared, make_plan(request))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("analysis", "name"), ASKED.items())
def test_every_question(shared, model_dirs, forgetful, analysis, name):
    """Every pass and every experiment, for learned and for rotary positions."""
    shop, corpus = shared
    torch.set_default_device(None)
    shop.models.take(catalog.locate(str(model_dirs[name])), "cpu")
    torch.set_default_device("meta")

    assert answered(shop, corpus, analysis, model_dirs[name]) is not None


def edits(model):
    """Every edit that there is, and all of them in a row."""
    rows = torch.ones(CONTEXT, model.geometry.d_model, device="cpu")
    factor = torch.ones(model.geometry.n_heads, CONTEXT, device="cpu")
    cells = [(0, 1)]
    found = [
        Edit(),
        interventions.AveragedPositions(3, rows),
        interventions.AveragedStream(1, 3, rows),
        interventions.PredecessorKnockout(5, [0], "scores"),
        interventions.PredecessorKnockout(5, [0], "pattern"),
        interventions.MovedAttention(1, 1, {7: [2, 3]}, "scores", 3.0, 2.0, "head"),
        interventions.MovedAttention(1, 1, {7: [2, 3]}, "pattern", 3.0, 2.0, "layer"),
        interventions.AblatedHeads(cells),
        interventions.RemovedEmbeddings("tokens"),
        interventions.RemovedEmbeddings("positions"),
        interventions.UniformHeads(cells),
        interventions.ScaledHeads(0, factor),
        interventions.ChangedBand(cells, 0, 64, "frozen"),
        interventions.ChangedBand(cells, 0, 64, "removed"),
    ]
    assert {type(edit) for edit in found[1:]} == {
        each for each in vars(interventions).values()
        if isinstance(each, type) and each.__module__ == interventions.__name__
        and issubclass(each, Edit)
    }  # fmt: skip
    return [*found, Chain(found)]


@pytest.mark.parametrize(
    "name", ["gpt2", "gemma2", "gpt-oss", "llama4", "bloom", "falcon-alibi", "gptj", "lfm2"]
)
def test_every_edit_and_statistic(model_dirs, tmp_path, forgetful, name):
    """Caps, sinks, chunks, slopes and layers without heads beside every change."""
    torch.set_default_device(None)
    path = model_dirs[name] if name in model_dirs else FAMILY_MODELS[name].build(tmp_path / name)
    model = pk.load(str(path), device="cpu")
    tokens = builders.random_ids(2, CONTEXT)
    torch.set_default_device("meta")

    readable = name != "llama4"  # it scales its queries by position too, which is refused
    for edit in (each for each in edits(model) if readable or not each.wants_rotations):
        assert "cpu" == model.run(tokens, edit).device.type
    turned = name in ("gemma2", "gpt-oss", "lfm2")  # of the others no rotation can be read
    gather = tuple(each for each in STATISTICS if turned or each != "rotary")
    gathered = pk.run_pass(model, tokens.numpy(), gather=gather, positions=(3, 20))
    assert all(np.isfinite(array).any() for array in gathered.arrays.values())
