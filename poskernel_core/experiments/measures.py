"""What is measured of one forward pass: next-token probabilities, loss, patterns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from poskernel_core.edits import Edit
from poskernel_core.models import LoadedModel
from poskernel_core.shapes import Tokens

__all__ = ["Measured", "kl_divergence", "measure"]


@dataclass(frozen=True)
class Measured:
    """One window under one edit.

    Attributes:
        log_probabilities: of the next token at every position, ``[pos, vocab]``, nats.
        loss: ``-log p`` of each token given those before it, ``[pos]``, nats; NaN at position 0.
        previous_mass: mean ``A(n, n-1)`` of every head, ``[layer, head]``.
        pattern: attention of the observed head, ``[query, key]``; empty where none is observed.
    """

    log_probabilities: np.ndarray
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
        masses.append(diagonal.double().mean(dim=-1).cpu().numpy())
        if cell is not None and layer == cell[0]:
            seen.append(pattern[0, cell[1]].float().cpu().numpy())

    tokens = torch.from_numpy(np.ascontiguousarray(window, dtype=np.int64))
    logits = model.run(tokens, edit, observe)[0]
    log_p = torch.log_softmax(logits.cpu().double(), dim=-1)
    loss = torch.full((tokens.shape[1],), torch.nan, dtype=torch.float64)
    loss[1:] = -log_p[:-1].gather(1, tokens[0, 1:, None])[:, 0]
    pattern = seen[0] if seen else np.zeros((0, 0), np.float32)
    return Measured(log_p.numpy(), loss.numpy(), np.stack(masses), pattern)


def kl_divergence(clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Return ``KL(clean || changed)`` of log-probabilities ``[pos, vocab]``, ``[pos]``, nats."""
    return np.maximum((np.exp(clean) * (clean - changed)).sum(axis=-1), 0.0)
