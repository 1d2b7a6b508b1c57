"""One index of a result, with its errors, and its title."""

import numpy as np
from jaxtyping import Float, Num

from poskernel_core.common.result import Result

Index = int | None
Numbers = Float[np.ndarray, "*shape"]


def part(result: Result, name: str, **chosen: Index) -> tuple[Num[np.ndarray, "*shape"], Numbers]:
    """Return a value of `result` and its errors (NaN: it has none), at one index of each axis.

    Axes that were already selected are ignored; their index may be None.
    """
    value = result.values[name]
    index: list[int | slice] = []
    for axis, size in zip(result.axes[name], value.shape, strict=True):
        at = chosen.get(axis)
        if axis in chosen and (at is None or not 0 <= at < size):
            raise ValueError(f"expected a {axis} from 0 to {size - 1}, received {at}")
        index.append(slice(None) if at is None else at)
    error = result.errors.get(name)
    error = np.full(value.shape, np.nan) if error is None else error
    return np.asarray(value[tuple(index)]), np.asarray(error[tuple(index)])


def query_of(result: Result, row: Float[np.ndarray, " key"]) -> int:
    """Return the query position of a row [key]: the selected one, else its last visible key."""
    return int(result.chosen.get("query", np.flatnonzero(np.nan_to_num(row))[-1]))


def title_of(layer: Index, head: Index, what: str) -> str:
    """Return a title that begins with the head, if there is one."""
    if layer is None or head is None:
        return what[0].upper() + what[1:]
    return f"L{layer}H{head}: {what}"
