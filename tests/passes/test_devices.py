"""Whether any tensor forgets its device: everything runs once while the default one is `meta`.

A tensor without a device lands on the default one. With the model on the CPU and `meta` as default,
such a tensor meets the model's and fails, as it would beside a model on a GPU.

And a pass on a device without float64, as Apple's GPUs are: the same numbers as on a CPU.
"""

from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES, Composition
from poskernel_core.analyses.bag.params import BagParams
from poskernel_core.analyses.kernels.formulas import mean_kernels
from poskernel_core.api import build_request
from poskernel_core.common import arithmetic
from poskernel_core.common.attention import ScoreRule, Slopes
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.engine.plan import make_plan
from poskernel_core.forward import interventions
from poskernel_core.forward.edits import Chain, Edit
from poskernel_core.models import catalog
from poskernel_core.models.catalog import locate
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.statistics import STATISTICS, Sizes
from poskernel_core.statistics.sinks import SinkSums
from poskernel_core.storage.store import Store
from tests.support import builders
from tests.support.stages import carried_out

CONTEXT, WINDOWS, QUERY = 29, 7, 20
FEW = {
    "samples": 3, "passages": 3, "query": QUERY, "first_windows": 3, "tokens": 5, "length": 9,
    "period": 7, "second": 5, "components": 3, "random_length": 9,
    "kernel_windows": 3, "loss_windows": 3,
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
    **{name: {"tokens": 9} for name in ("kernel-only-cost", "kernel-only-head", "heads-replaced")},
    **{
        name: {"clean": "the word", "changed": "the wors"}
        for name in ("patch-heads", "patch-positions")
    },
    **{name: {"maker": "copying", "count": 11} for name in ("edges", "faithfulness")},
    **{name: {"text": "the word", "query": 2} for name in ("head-writes", "logit-contributions")},
    "ablate-heads": {"tokens": 9, "heads": "L0H1, L1H0", "by": "kernel"},
}
ASKED = {
    name: "talking"
    if name == "conversations"
    else "gpt2"
    if question.fits_scheme("learned")
    else "llama"
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


def answered(shared, corpus, analysis, model, device="cpu"):
    """The result of a question that is asked in this process."""
    fields = ANALYSES[analysis].params.model_fields
    params = {name: value for name, value in FEW.items() if name in fields}
    params |= {"heads": "L0H0, L0H1"} if issubclass(ANALYSES[analysis].params, BagParams) else {}
    own = OWN.get(analysis, {})
    chosen = {name: each for name, each in (("head", "L1H1"), ("query", QUERY)) if name in fields}
    chosen = {name: each for name, each in chosen.items() if name not in own}
    request, _ = build_request(
        analysis, str(model), params=params | own,
        corpus=corpus, context=CONTEXT, windows=WINDOWS, **chosen,
    )  # fmt: skip
    return carried_out(shared, make_plan(request), device=device)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("analysis", "name"), ASKED.items())
def test_every_question(shared, model_dirs, talking, forgetful, analysis, name):
    """Every pass and every experiment, for learned and for rotary positions."""
    shop, corpus = shared
    model = model_dirs.get(name, talking)
    corpus = corpus if name in model_dirs else CorpusSpec(name="sample")
    torch.set_default_device(None)
    shop.models.take(catalog.locate(str(model)), "cpu")
    torch.set_default_device("meta")

    assert answered(shop, corpus, analysis, model) is not None


def edits(model):
    """Every edit that there is, and all of them in a row."""
    rows = torch.ones(CONTEXT, model.geometry.d_model, device="cpu")
    factor = torch.ones(model.geometry.n_heads, CONTEXT, device="cpu")
    cells, width = [(0, 1)], model.geometry.layers[0].d_head
    outputs = torch.ones(2, model.geometry.n_heads, CONTEXT, width, device="cpu")
    found = [
        Edit(),
        interventions.AveragedPositions(3, rows),
        interventions.AveragedStream(1, 3, rows),
        interventions.PredecessorKnockout(5, [0], "scores"),
        interventions.PredecessorKnockout(5, [0], "pattern"),
        interventions.MovedAttention(1, 1, {7: [2, 3]}, "scores", 3.0, 2.0, "head"),
        interventions.MovedAttention(1, 1, {7: [2, 3]}, "pattern", 3.0, 2.0, "layer"),
        interventions.AblatedHeads(cells),
        interventions.FixedHeads({(0, 1): rows[:, :CONTEXT]}, {(1, 0): rows[0, :1]}),
        interventions.SetOutputs(0, outputs),
        interventions.SetInputs(0, 1, *(outputs[:, 1],) * 3),
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
def test_every_edit_and_statistic(model_dirs, forgetful, name):
    """Caps, sinks, chunks, slopes and layers without heads beside every change."""
    torch.set_default_device(None)
    model = pk.load(str(model_dirs[name]), device="cpu")
    tokens = builders.random_ids(2, CONTEXT)
    torch.set_default_device("meta")

    readable = name != "llama4"  # it scales its queries by position too, which is refused
    for edit in (each for each in edits(model) if readable or not each.wants_rotations):
        assert "cpu" == model.run(tokens, edit).device.type
    turned = name in ("gemma2", "gpt-oss", "lfm2")  # of the others no rotation can be read
    gather = tuple(each for each in STATISTICS if turned or each != "rotary")
    gathered = pk.run_pass(model, tokens.numpy(), gather=gather, positions=(3, 20))
    assert all(np.isfinite(array).any() for array in gathered.arrays.values())


IDS = builders.random_ids(WINDOWS, CONTEXT, seed=4).numpy()


MPS = torch.device("mps")


class OnMps(torch.Tensor):
    """A tensor that says it lies on `mps`; its numbers are those of `inner`, on the CPU.

    To torch itself it lies on `meta`, which every build knows.
    """

    device = property(lambda self: MPS)

    @staticmethod
    def __new__(cls, inner) -> torch.Tensor:
        """Make it; the device has no float64."""
        if inner.dtype in (torch.float64, torch.complex128):
            raise TypeError(
                "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support "
                "float64. Please use float32 instead."
            )
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device="meta", requires_grad=False,
        )  # fmt: skip

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        """Say what it is: torch's own would compute."""
        return f"OnMps({tuple(self.shape)}, {self.dtype})"

    def tolist(self):
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None) -> Any:
        return compute(func, args, kwargs or {})


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


class _FromLists(TorchFunctionMode):
    """What torch makes of lists it moves to the device without asking the other mode."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.tensor and kwargs.get("device") == MPS:
            return OnMps(func(*args, **kwargs | {"device": "cpu"}))
        if func is torch.Tensor.__getitem__ and isinstance(args[1], tuple):
            places = (torch.tensor(p, device="cpu") if isinstance(p, list) else p for p in args[1])
            args = args[0], tuple(places)
        return func(*args, **kwargs)


@contextmanager
def mps():
    """While it is entered, `mps` is a device: tensors made there are `OnMps`."""
    with _Operations(), _FromLists():
        yield


MOVES = ("aten::to", "aten::_to_copy", "aten::copy_")
MIXED = (*MOVES, "aten::index")
"""What takes tensors of two devices: moves, and places that are looked up."""


def compute(func, args, kwargs):
    """Run an operation on the CPU, as the device would: refuse what it refuses."""
    name, wrappers = func._schema.name, {}
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    there = [x for x in tensors if isinstance(x, OnMps)]
    target = next((x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.device)), None)
    if name in MOVES and len(tensors) == 2:  # the one where the other is, or into the other
        target = tensors["copy_" not in name].device
    stays = bool(there) if target is None else target.type in ("mps", "meta")
    if name not in MIXED and there and any(x.dim() for x in tensors if not isinstance(x, OnMps)):
        raise RuntimeError(f"{name}: expected all tensors to be on the same device, mps and cpu")

    def opened(x):
        if isinstance(x, OnMps):
            wrappers[id(x.inner)] = x
            return x.inner
        return torch.device("cpu") if isinstance(x, torch.device) else x

    found = func(*tree_map(opened, args), **tree_map(opened, kwargs))
    if name in MOVES and there and found.dtype == torch.float64:
        OnMps(found)  # numbers are converted where they come from

    def closed(x):
        if not isinstance(x, torch.Tensor):
            return x
        with torch.inference_mode(False):
            return wrappers[id(x)] if id(x) in wrappers else OnMps(x)

    return tree_map(closed, found) if stays else found


def moved(model):
    """A loaded model on the device, its weights and buffers copied there."""
    for part in model.module.modules():
        for name, weight in part.named_parameters(recurse=False):
            part._parameters[name] = torch.nn.Parameter(OnMps(weight.detach()), requires_grad=False)
        for name, buffer in part.named_buffers(recurse=False):
            part._buffers[name] = OnMps(buffer)
    model.hooks.home = MPS
    return replace(model, device=MPS)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bloom", "gpt-oss"])
def test_a_whole_pass(model_dirs, name):
    """Every statistic is gathered there, and is that of a CPU to rounding."""
    model = pk.load(str(model_dirs[name]), device="cpu")
    gather = tuple(STATISTICS)
    expected = pk.run_pass(model, IDS, gather=gather, batch=4).arrays

    with mps():
        found = pk.run_pass(moved(model), IDS, gather=gather, batch=4).arrays

    assert expected.keys() == found.keys()
    for each, array in expected.items():
        tolerance = 9 if each.endswith(".groups") else 1e-5  # of 32767 steps
        np.testing.assert_allclose(
            found[each].astype(float), array, rtol=1e-4, atol=tolerance, err_msg=each
        )


def test_sums_are_exact(model_dirs):
    """Numbers that are added from there are those of float32, and their sum that of float64."""
    geometry, texts = locate(str(model_dirs["gpt2"])).geometry, 40
    random = torch.Generator("cpu").manual_seed(1)
    noise = torch.randn(texts, geometry.n_heads, generator=random, device="cpu")
    values = 100 + 0.01 * noise
    statistic = SinkSums(Sizes(geometry, CONTEXT, texts, (20,), 1, False), MPS)

    with mps():
        for each in values:
            statistic.add("learned_sum", 0, OnMps(each))

    expected = values.double().sum(dim=0)
    assert torch.equal(expected, statistic.sums["learned_sum"][0])
    assert not torch.equal(expected.float(), values.sum(dim=0))


def test_arithmetic_runs_there():
    """The formulas of the kernels ask for no float64, and their numbers are those of a CPU."""
    draw = np.random.default_rng(2).standard_normal
    slopes = Slopes(tuple(2.0 ** -np.arange(6)))
    given = draw((6, 11, 5)), draw((3, 7, 5)), ScoreRule(0.7, cap=2.0, slopes=slopes), 3, 4
    expected = mean_kernels(*given)
    there = []

    def place(array):
        there.append(array.nbytes)
        return OnMps(torch.tensor(array, device="cpu"))

    try:
        arithmetic.run_on(place)
        with mps():
            found = mean_kernels(*given)
    finally:
        arithmetic.run_on(None)

    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert there == [4 * 6 * 11 * 5, 4 * 3 * 7 * 5]
