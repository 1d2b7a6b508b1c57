"""Products of the whole vocabulary with all neurons, a block of neurons at a time.

The product of 50,257 tokens and 3,072 neurons has 154 million numbers, too many to hold at once.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

CELLS = 2**24
"""How many numbers a block has: 64 MB in float32."""


def ends(
    table: Float[Tensor, "token model"], readers: Float[Tensor, "model neuron"], listed: int
) -> dict[str, Tensor]:
    """Return a summary of every neuron's contributions over the tokens, a block at a time.

    ``contribution_mean contribution_std [neuron]``; the tokens, by index, that contribute most and
    least (``top bottom [neuron rank]``), and their contributions, ``top_`` and
    ``bottom_contribution``.
    """
    listed, size = min(listed, len(table)), max(1, CELLS // len(table))
    parts: list[dict[str, Tensor]] = []
    for some in readers.split(size, dim=1):
        block = some.T @ table.T
        std, mean = torch.std_mean(block, dim=1, correction=min(1, len(table) - 1))
        parts.append({"contribution_mean": mean, "contribution_std": std})
        for end in ("top", "bottom"):
            value, token = block.topk(listed, dim=1, largest=end == "top")
            parts[-1] |= {end: token, f"{end}_contribution": value}
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def named_ends(
    decode: Callable[[list[int]], list[str]], ids: np.ndarray, values: np.ndarray, listed: int
) -> tuple[dict[str, np.ndarray], dict[str, list[str]]]:
    """Return the largest (``top``) and smallest values, and the texts of their tokens."""
    order = np.argsort(values, kind="stable")
    places = {"top": order[::-1][:listed], "bottom": order[:listed]}
    return (
        {f"{name}_value": values[some] for name, some in places.items()},
        {f"{name}_words": decode(ids[some].tolist()) for name, some in places.items()},
    )


def worded(
    decode: Callable[[list[int]], list[str]], tokens: dict[str, np.ndarray]
) -> dict[str, list[list[str]]]:
    """Return the texts of token ids ``[row, rank]`` by name, each token decoded once."""
    used = np.unique(np.concatenate([ids.ravel() for ids in tokens.values()])).tolist()
    words = dict(zip(used, decode(used), strict=True))
    return {
        f"{name}_words": [[words[token] for token in row] for row in ids.tolist()]
        for name, ids in tokens.items()
    }
