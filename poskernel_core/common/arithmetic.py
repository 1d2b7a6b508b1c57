"""Where the arithmetic on stored sums runs: on the processor, or on the GPU that runs the models.

Formulas are written once, for NumPy arrays and for torch tensors (the array API). Nothing here
imports torch: whoever runs models on a GPU tells how arrays get there.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from array_api_compat import to_device

T = TypeVar("T")
Place = Callable[[np.ndarray], Any]

FULL = ("OutOfMemoryError", "out of memory", "ALLOC_FAILED", "NOT_INITIALIZED")
"""What torch's errors say where a GPU has no memory left, for arrays or for its libraries."""

_there: Place | None = None
_ONE = threading.Lock()
"""One thread at a time on the GPU, which would do their work one after another in any case."""


def run_on(place: Place | None) -> None:
    """Let arithmetic run where ``place`` puts an array; None: in this processor, as at first.

    What runs elsewhere ends before.
    """
    global _there
    with _ONE:
        _there = place


def carry_out(work: Callable[..., T], *arrays: np.ndarray) -> T:
    """Call ``work`` with the arrays in 32 bits, where arithmetic runs.

    If the GPU has no memory left, it is called with NumPy's.
    """
    narrow = [np.asarray(array, dtype=np.float32) for array in arrays]
    if _there is not None:
        try:
            with _ONE:
                if (place := _there) is not None:  # still
                    return work(*map(place, narrow))
        except RuntimeError as error:
            if not any(words in f"{type(error).__name__}: {error}" for words in FULL):
                raise
    return work(*narrow)


def taken(array: Any) -> np.ndarray:
    """Return an array of arithmetic as NumPy's."""
    return np.asarray(to_device(array, "cpu"))
