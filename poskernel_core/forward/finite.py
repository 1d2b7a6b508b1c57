"""Checks that tensors are finite: a result with NaN or infinity is an error."""

from torch import Tensor

from poskernel_core.common.errors import ComputeFailed


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
