"""The precision of matrix products: one setting of torch for the whole process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["EXACT", "precision"]

EXACT = threading.RLock()
"""Held by who needs products in full float32, and by who has allowed TF32 meanwhile: a pass in TF32
may enter it again."""


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Allow TF32 matrix products inside the block when ``dtype`` is ``tf32``.

    torch keeps one setting for the whole process, so no other block runs meanwhile.
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
