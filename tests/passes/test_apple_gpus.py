"""A pass on a device without float64, as Apple's GPUs are: the same numbers as on a CPU."""

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
from poskernel_core.models.catalog import locate
from poskernel_core.statistics import STATISTICS, Sizes
from poskernel_core.statistics.sinks import SinkSums
from tests.support import builders
from tests.support.builders.families import FAMILY_MODELS

WINDOWS, CONTEXT = 6, 21
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


def test_the_device():
    """It computes, moves, makes and refuses as Apple's do."""
    with mps():
        ones = torch.ones(3, device=MPS)
        assert MPS == (ones + 1).device
        assert [2.0, 2.0, 2.0] == (ones + 1).cpu().tolist()
        for refused in (ones.double, lambda: ones.to("cpu", torch.float64),
                        lambda: torch.zeros(2, dtype=torch.float64, device=MPS),
                        lambda: ones.sum(dtype=torch.float64)):  # fmt: skip
            with pytest.raises(TypeError, match="doesn't support float64"):
                refused()
        with pytest.raises(RuntimeError, match="same device"):
            torch.zeros(3, device="cpu") + ones


@pytest.mark.parametrize("name", ["gpt2", "llama", "bloom", "gpt-oss"])
def test_a_whole_pass(tmp_path, model_dirs, name):
    """Every statistic is gathered there, and is that of a CPU to rounding."""
    path = model_dirs.get(name) or FAMILY_MODELS[name].build(tmp_path / name)
    model = pk.load(str(path), device="cpu")
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
