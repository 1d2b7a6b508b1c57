"""Products of the whole vocabulary with all neurons, a block of neurons at a time.

The product of 50,257 tokens and 3,072 neurons has 154 million numbers, too many to hold at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

CELLS = 2**24
"""How many numbers a block has: 64 MB in float32."""


@dataclass(frozen=True)
class Ends:
    """Summary of every neuron's contributions over the vocabulary.

    Attributes:
        mean, std: over tokens, ``[neuron]``.
        top, bottom: indices of the tokens that contribute most and least, ``[neuron, rank]``.
        highest, lowest: their contributions.
    """

    mean: Float[Tensor, " neuron"]
    std: Float[Tensor, " neuron"]
    top: Int[Tensor, "neuron rank"]
    highest: Float[Tensor, "neuron rank"]
    bottom: Int[Tensor, "neuron rank"]
    lowest: Float[Tensor, "neuron rank"]


def contributions(
    table: Float[Tensor, "token model"], readers: Float[Tensor, "model neuron"]
) -> Iterator[tuple[slice, Float[Tensor, "some token"]]]:
    """Yield the contributions of all tokens to some neurons at a time."""
    size = max(1, CELLS // len(table))
    for first in range(0, readers.shape[1], size):
        some = slice(first, first + size)
        yield some, readers[:, some].T @ table.T


def ends(
    table: Float[Tensor, "token model"], readers: Float[Tensor, "model neuron"], listed: int
) -> Ends:
    """Return mean, spread and both ends of every neuron's contributions over the tokens."""
    listed = min(listed, len(table))
    parts: list[tuple[Tensor, ...]] = []
    for _, block in contributions(table, readers):
        highest, top = block.topk(listed, dim=1)
        lowest, bottom = block.topk(listed, dim=1, largest=False)
        std, mean = torch.std_mean(block, dim=1, correction=min(1, len(table) - 1))
        parts.append((mean, std, top, highest, bottom, lowest))
    return Ends(*(torch.cat(each) for each in zip(*parts, strict=True)))


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
