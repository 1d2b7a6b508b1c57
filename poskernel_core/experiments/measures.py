"""What is measured of one forward pass: next-token probabilities, loss, patterns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from poskernel_core.edits import Edit
from poskernel_core.models import LoadedModel
from poskernel_core.shapes import Tokens

__all__ = ["Measured", "kl_divergence", "log_probabilities", "measure"]

CHUNK = 64


@dataclass(frozen=True)
class Measured:
    """One window under one edit.

    Attributes:
        logits: of the next token at every position, ``[pos, vocab]``.
        loss: ``-log p`` of each token given those before it, ``[pos]``, nats; NaN at position 0.
        previous_mass: mean ``A(n, n-1)`` of every head, ``[layer, head]``.
        pattern: attention of the observed head, ``[query, key]``; empty where none is observed.
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
    masses: list[np.ndarray] = []
    seen: list[np.ndarray] = []

    def observe(layer: int, pattern: torch.Tensor) -> None:
        diagonal = pattern[0].diagonal(-1, dim1=-2, dim2=-1)[:, int(start_token) :]
        masses.append(diagonal.cpu().double().mean(dim=-1).numpy())
        if cell is not None and layer == cell[0]:
            seen.append(pattern[0, cell[1]].float().cpu().numpy())

    tokens = torch.from_numpy(np.ascontiguousarray(window, dtype=np.int64))
    logits = model.run(tokens, edit, observe)[0].cpu()
    loss = np.full(len(logits), np.nan)
    for rows in _chunks(len(logits) - 1):
        right = tokens[0, rows.start + 1 : rows.stop + 1, None]
        loss[rows.start + 1 : rows.stop + 1] = -log_probabilities(logits, rows).gather(1, right)[
            :, 0
        ]
    pattern = seen[0] if seen else np.zeros((0, 0), np.float32)
    return Measured(logits, loss, np.stack(masses), pattern)


def log_probabilities(logits: Tensor, rows: slice) -> Tensor:
    """Return the log-probabilities of some positions, ``[pos, vocab]`` in float64, nats."""
    return torch.log_softmax(logits[rows].double(), dim=-1)


def kl_divergence(clean: Tensor, changed: Tensor) -> np.ndarray:
    """Return ``KL(clean || changed)`` of two sets of logits ``[pos, vocab]``, ``[pos]``, nats."""
    found = np.zeros(len(clean))
    for rows in _chunks(len(clean)):
        p, q = log_probabilities(clean, rows), log_probabilities(changed, rows)
        found[rows] = (p.exp() * (p - q)).sum(dim=-1).clamp(min=0)
    return found


def _chunks(length: int) -> Iterator[slice]:
    """Yield slices of few positions: a large vocabulary in float64 takes memory."""
    return (slice(at, min(at + CHUNK, length)) for at in range(0, length, CHUNK))
