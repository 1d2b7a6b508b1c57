"""Names of heads, such as ``L0H3``, and their order by a number."""

import re
from typing import Any

import numpy as np

from poskernel_core.common.errors import BadRequest


def parse_cell(text: str, n_layers: int, n_heads: int) -> tuple[int, int]:
    """Return ``(layer, head)`` of a head written ``L0H3``."""
    text = str(text)  # callers may pass any object
    match = re.fullmatch(r"[Ll]([0-9]{1,6})[Hh]([0-9]{1,6})", text.strip())
    cell = (int(match[1]), int(match[2])) if match else (-1, -1)
    if not (0 <= cell[0] < n_layers and 0 <= cell[1] < n_heads):
        raise BadRequest(
            f"A head is written L<layer>H<head>, from L0H0 to L{n_layers - 1}H{n_heads - 1} "
            f"in this model; got {text[:40]!r}."
        )
    return cell


def head_name(layer: int, head: int) -> str:
    """Return the name of a head, such as ``L0H3``."""
    return f"L{layer}H{head}"


def layer_of(text: str) -> int:
    """Return the layer of a head written ``L0H3``, or -1 if the text is not a head."""
    match = re.fullmatch(r"[Ll]([0-9]{1,6})[Hh][0-9]{1,6}", text.strip())
    return int(match[1]) if match else -1


def largest_first(numbers: np.ndarray, most: int | None = None) -> list[tuple[Any, ...]]:
    """Return the places of an array's numbers, the largest first; NaN is left out."""
    order = np.argsort(-numbers, axis=None, kind="stable")[: np.isfinite(numbers).sum()][:most]
    return [*zip(*(axis.tolist() for axis in np.unravel_index(order, numbers.shape)), strict=True)]
