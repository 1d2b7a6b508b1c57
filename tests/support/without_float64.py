"""A device like Apple's GPUs, on any machine: computed by the CPU, and without float64."""

from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

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
