"""Settings of torch, the process' and the thread's; what is computed is finite."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from poskernel_core.common.errors import ComputeFailed

EXACT = threading.RLock()
"""Lock held by every forward pass, and while TF32 is allowed. It is reentrant, so a pass can run
inside a TF32 block."""


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Allow TF32 matrix products inside the block when ``dtype`` is ``tf32``.

    The setting applies to the whole process, so ``EXACT`` is held and no other pass can run.
    """
    if dtype != "tf32":
        yield
        return
    with EXACT:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


@contextmanager
def neutral() -> Iterator[None]:
    """Run with torch's own settings inside the block; afterwards the caller's are as before.

    The default dtype is the process'. Autocast, inference mode, gradients and the default device
    are this thread's: others, such as a worker's, have them as torch has.
    """
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        disabled = torch._C._DisableAutocast()  # noqa: SLF001 - of every device type
        with disabled, torch.inference_mode(False), torch.enable_grad(), torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)


def is_finite(tensor: Tensor) -> bool:
    """Tell whether a tensor contains neither NaN nor infinity; does not copy a dense tensor."""
    in_memory_order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    dense = tensor.detach().permute(in_memory_order)  # aminmax copies tensors in other orders
    return not tensor.numel() or all(bool(end.isfinite()) for end in dense.aminmax())


def require_finite(found: Tensor, whose: str) -> Tensor:
    """Return the output of a part of a model if it is finite."""
    if not is_finite(found):
        raise ComputeFailed(
            f"{whose} puts out NaN or infinity for these tokens: the weights, or the change made, "
            "are too large for the precision."
        )
    return found
