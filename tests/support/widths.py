"""Arithmetic on stored sums in several widths and places."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from poskernel_core.common import arithmetic

PLACES = {"NumPy": None, "torch": torch.tensor}


def in_64_bits(work, *arrays):
    """Do the arithmetic in NumPy's 64 bits."""
    return work(*(array.astype(np.float64) for array in arrays))


@contextmanager
def arithmetic_in(place):
    """Arithmetic runs there meanwhile; what comes is by how much a kernel may differ."""
    with pytest.MonkeyPatch.context() as patch:
        if place == "64 bits":
            patch.setattr(arithmetic, "carry_out", in_64_bits)
        arithmetic.run_on(PLACES.get(place))
        try:
            yield 1e-12 if place == "64 bits" else 1e-6
        finally:
            arithmetic.run_on(None)
