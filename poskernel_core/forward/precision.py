"""Settings of torch, the process' and the thread's; what is computed is finite."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

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


MATMULS = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
KERNELS = [getattr(SDPBackend, f"{name}_ATTENTION") for name in ("FLASH", "EFFICIENT", "CUDNN")]
_blocks: list[ExitStack] = []


@contextmanager
def neutral() -> Iterator[None]:
    """Run with torch's own settings inside the block; afterwards the caller's are as before.

    Autocast, inference mode, gradients and the default device are set for this thread: others, such
    as a worker's, have them as torch has. What is set for the process is the caller's again when no
    block is left in any thread.
    """
    with EXACT:
        stack = _blocks[0] if _blocks else ExitStack()
        if not _blocks:
            stack.enter_context(_process_wide())
        _blocks.append(stack)
    try:
        disabled = torch._C._DisableAutocast()  # noqa: SLF001 - of every device type
        with disabled, torch.inference_mode(False), torch.enable_grad(), torch.device("cpu"):
            yield
    finally:
        with EXACT:
            _blocks.pop()
            if not _blocks:
                stack.close()


@contextmanager
def _process_wide() -> Iterator[None]:
    dtype, products = torch.get_default_dtype(), [matmul.fp32_precision for matmul in MATMULS]
    matmul_precision = None
    with suppress(RuntimeError):  # torch's older and newer settings differ
        matmul_precision = torch.get_float32_matmul_precision()
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    try:
        with sdpa_kernel([*KERNELS, SDPBackend.MATH]):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(matmul_precision or "highest")
        for backend, before in zip(MATMULS, products, strict=True):
            backend.fp32_precision = before


def is_finite(tensor: Tensor) -> bool:
    """Tell whether a tensor contains neither NaN nor infinity; does not copy a dense tensor."""
    in_memory_order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    dense = tensor.detach().permute(in_memory_order)  # aminmax copies tensors in other orders
    return not tensor.numel() or all(bool(end.isfinite()) for end in dense.aminmax())


def require_finite(output: Tensor, whose: str) -> Tensor:
    """Return the output of a part of a model if it is finite."""
    if not is_finite(output):
        raise ComputeFailed(
            f"{whose} puts out NaN or infinity for these tokens: the weights, or the change made, "
            "are too large for the precision."
        )
    return output
