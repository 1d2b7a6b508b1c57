"""Measurements of one forward pass: next-token logits, loss and patterns."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel_core.common.axes import Tokens
from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.loading import LoadedModel
from poskernel_core.forward.observers import Batch, Observer

CHUNK = 64


@dataclass(frozen=True)
class Measured:
    """Measurements of one window under one edit.

    Attributes:
        logits: next-token logits at every position, ``[pos, vocab]``.
        loss: ``-log p`` of each token given the tokens before it, ``[pos]``, nats; NaN at 0.
        previous_mass: mean ``A(n, n-1)`` of every head, ``[layer, head]``.
        pattern: attention of the observed head, ``[query, key]``; empty without one.
    """

    logits: Tensor
    loss: np.ndarray
    previous_mass: np.ndarray
    pattern: np.ndarray


def measure(
    model: LoadedModel,
    window: Tokens,
    edit: Edit,
    *,
    start_token: bool,
    cell: tuple[int, int] | None = None,
) -> Measured:
    """Run one window ``[1, pos]`` under an edit and measure it.

    The start token's row and column are left out of ``previous_mass``.
    """
    seen = _PatternReadout(int(start_token), cell)
    tokens = torch.from_numpy(np.ascontiguousarray(window, dtype=np.int64))
    logits = model.run(tokens, edit, [seen])[0].cpu()
    loss = np.append(np.nan, losses(logits, tokens[0]).numpy())
    return Measured(logits, loss, np.stack(seen.previous_mass), seen.of_cell)


def losses(
    logits: Float[Tensor, "*text pos vocab"], tokens: Int[Tensor, "*text pos"]
) -> Float[Tensor, "*text predicted"]:
    """Return ``-log p`` of each token but the first, given those before it, in nats and 64 bits.

    Gradients are kept. They are where the logits are; on MPS, which has no 64 bits, on the CPU.
    """
    logits = logits.cpu() if logits.is_mps else logits
    right, parts = tokens[..., 1:, None].to(logits.device), []
    for rows in _chunks(right.shape[-2]):
        wide = logits[..., rows, :].double()
        target = wide.gather(-1, right[..., rows, :])[..., 0]
        parts.append(wide.logsumexp(dim=-1) - target)
    return torch.cat(parts, dim=-1) if parts else right[..., 0].double()


class _PatternReadout(Observer):
    """Keep mean attention to predecessors, ``[head]`` by layer, and the chosen head's pattern."""

    wants_patterns = True

    def __init__(self, start: int, cell: tuple[int, int] | None) -> None:
        self.previous_mass: list[np.ndarray] = []
        self.of_cell = np.zeros((0, 0), np.float32)
        self._start, self._cell = start, cell

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        pattern = block.pattern[0]
        diagonal = pattern.diagonal(-1, dim1=-2, dim2=-1)[:, self._start :]
        self.previous_mass.append(diagonal.cpu().double().mean(dim=-1).numpy())
        if self._cell is not None and block.layer == self._cell[0]:
            self.of_cell = pattern[self._cell[1]].float().cpu().numpy()


def log_probabilities(logits: Tensor, rows: slice) -> Tensor:
    """Return the log-probabilities of some positions, ``[pos, vocab]`` in float64, nats."""
    return torch.log_softmax(logits[rows].double(), dim=-1)


def kl_divergence(clean: Tensor, changed: Tensor) -> np.ndarray:
    """Return ``KL(clean || changed)`` ``[pos]``, in nats, from logits ``[pos, vocab]``."""
    divergence = np.zeros(len(clean))
    for rows in _chunks(len(clean)):
        p, q = log_probabilities(clean, rows), log_probabilities(changed, rows)
        divergence[rows] = (p.exp() * (p - q)).sum(dim=-1).clamp(min=0).numpy()
    return divergence


def _chunks(length: int) -> Iterator[slice]:
    """Yield slices of positions, to limit the memory of log-probabilities in float64."""
    return (slice(at, min(at + CHUNK, length)) for at in range(0, length, CHUNK))
