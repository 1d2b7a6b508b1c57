"""Where the arithmetic on stored sums runs: on the processor, or on the GPU that runs the models.

Formulas are written once, for NumPy arrays and for torch tensors (the array API). Nothing here
imports torch: whoever runs models on a GPU tells how arrays get there.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import to_device

_PLACES: list[Callable[[np.ndarray], Any]] = []


def run_on(place: Callable[[np.ndarray], Any] | None) -> None:
    """Let arithmetic run where ``place`` puts an array; None: in this processor, as at first."""
    _PLACES[:] = [] if place is None else [place]


def placed(array: np.ndarray) -> Any:
    """Return an array in 32 bits, where arithmetic runs."""
    narrow = np.asarray(array, dtype=np.float32)
    return _PLACES[0](narrow) if _PLACES else narrow


def taken(array: Any) -> np.ndarray:
    """Return an array of arithmetic as NumPy's."""
    return np.asarray(to_device(array, "cpu"))
