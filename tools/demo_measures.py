"""What a small model's heads do: plain loops over eager attention patterns.

Shapes: L layers, H heads, T positions, D residual width, d head width, V vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from demo_recipes import START
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel


@contextmanager
def eager(model: PreTrainedModel) -> Iterator[None]:
    """Run with attention that returns its patterns, without gradients."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            yield
    finally:
        model.set_attn_implementation(before)


def patterns(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """Attention probabilities of one window after another, summed over windows, [L, H, T, T]."""
    total = torch.zeros(())
    with eager(model):
        for window in tokens:
            layers = model(window[None], output_attentions=True).attentions
            total = total + torch.cat(layers)
    return total / len(tokens)


def previous_token(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """`P(1)`, [L, H]: mean attention to the token before; the start token left out."""
    first = patterns(model, tokens)[..., 1:, 1:].diagonal(-1, -2, -1)
    return first.mean(-1)


def repeated_random(vocabulary: int, period: int, count: int, seed: int = 0) -> Tensor:
    """Start token, then `period` random tokens twice, [count, 1 + 2 * period]."""
    generator = torch.Generator().manual_seed(seed)
    once = torch.randint(START + 1, vocabulary, (count, period), generator=generator)
    return torch.cat([torch.full((count, 1), START), once, once], dim=1)


def induction(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """Induction score, [L, H]: mean attention to the token after the earlier copy.

    `tokens` is as from `repeated_random`: in the second copy, `n` looks at `n + 1 - period`.
    """
    period = (tokens.shape[1] - 1) // 2
    return patterns(model, tokens).diagonal(1 - period, -2, -1)[..., 2:].mean(-1)


def copy_losses(model: PreTrainedModel, tokens: Tensor) -> tuple[float, float]:
    """Loss on the first and on the second copy of random tokens, in nats a token."""
    period = (tokens.shape[1] - 1) // 2
    losses = token_losses(model, tokens)
    return losses[:, :period].mean().item(), losses[:, period + 1 :].mean().item()


def token_losses(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """Loss of each next token, in nats, [windows, T - 1]."""
    with torch.no_grad():
        rows = [
            cross_entropy(model(w[None]).logits[0, :-1].float(), w[1:], reduction="none")
            for w in tokens
        ]
    return torch.stack(rows)
