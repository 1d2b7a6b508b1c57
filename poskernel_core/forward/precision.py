"""The precision of matrix products, a process-wide setting of torch."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

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
