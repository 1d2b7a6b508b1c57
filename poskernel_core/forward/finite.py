"""Whether tensors are numbers throughout: NaN and infinity are errors, not answers."""

from __future__ import annotations

from torch import Tensor

from poskernel_core.common.errors import ComputeFailed

__all__ = ["is_finite", "require_finite"]


def is_finite(tensor: Tensor) -> bool:
    """Tell whether a tensor holds neither NaN nor infinity; no copy of a dense one is made."""
    in_memory_order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    dense = tensor.detach().permute(in_memory_order)  # others would be copied to be read
    return not tensor.numel() or all(bool(end.isfinite()) for end in dense.aminmax())


def require_finite(found: Tensor, whose: str) -> Tensor:
    """Return what a part of a model put out, if it is numbers.

    Raises:
        ComputeFailed: NaN or infinity is among it.
    """
    if not is_finite(found):
        raise ComputeFailed(
            f"{whose} puts out NaN or infinity for these tokens: the weights, or the change made, "
            "are too large for the precision."
        )
    return found
