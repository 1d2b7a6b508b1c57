"""The bag's predictions along a text: the stream before layer 0's MLP, and its pre-activations."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel_core.analyses.bag.experiment.bag import Bag, by_position

KERNELS = ("common", "own")
"""Kernels of the heads: their common mean kernel, or each one's own."""

SCALES = ("mean", "position", "token")
"""What the norms' scales depend on: nothing (the post), the position (its appendix), or the token
and, in the second norm, the predicted stream itself."""


@dataclass(frozen=True)
class PredictionParts:
    """The parts of a text's predicted stream before the MLP, ``[pos, model]`` each.

    Attributes:
        direct: the stream before the layer, not approximated.
        bag: ``sum_i K(n,i) e(t_i)`` of the contextual heads.
        position: what else the contextual heads write, from positions, biases, the start token.
        others: what other heads write if they attend only to the current token, and the output
            bias.
        scale: the second norm's scale, ``[pos]``.
    """

    direct: Tensor
    bag: Tensor
    position: Tensor
    others: Tensor
    scale: Tensor

    @property
    def between(self) -> Float[Tensor, "pos model"]:
        """The predicted stream before the MLP."""
        return self.direct + (self.bag + self.position) + self.others

    def through(self, part: Tensor, bag: Bag) -> Float[Tensor, "pos neuron"]:
        """Return a part's contribution to every neuron's pre-activation."""
        return (self.scale[:, None] * bag.layer.norm2.linear(part)) @ bag.layer.w_in

    def activation(self, bag: Bag) -> Float[Tensor, "pos neuron"]:
        """Return the predicted pre-activation of every neuron."""
        layer = bag.layer
        return self.through(self.between, bag) + layer.norm2.bias @ layer.w_in + layer.b_in


def predict(
    bag: Bag, tokens: Tensor, kernel: str = "own", by: str | None = None
) -> PredictionParts:
    """Return the parts for token ids ``[pos]``, without running the model.

    ``kernel`` is one of ``KERNELS``, ``by`` one of ``SCALES`` (default: the bag's).
    """
    layer, length, by = bag.layer, len(tokens), by or bag.by
    direct = layer.embedding[tokens] + layer.positions[:length]
    written, fixed = joint(bag, tokens, kernel, by, torch.arange(length, device="cpu"))
    others = _others(bag, direct)
    second = _second_scale(bag, direct + written + fixed + others, by)
    return PredictionParts(direct, written, fixed, others, second)


def joint(
    bag: Bag, tokens: Tensor, kernel: str, by: str, rows: Tensor
) -> tuple[Float[Tensor, "row model"], Float[Tensor, "row model"]]:
    """Return the contextual heads' output at some positions: the bag, and the rest."""
    kernels = bag.kernels[:, rows] if kernel == "own" else bag.common[None, rows]
    kernels, scale = kernels[..., : len(tokens)], bag.scale_of(tokens, by)
    values, w_o = bag.values(tokens, scale), bag.layer.w_o[list(bag.heads)]
    values[:, : bag.start] = 0
    parts = values, _constant_values(bag, scale)
    written, fixed = (torch.einsum("hnd,hdm->nm", kernels @ part, w_o) for part in parts)
    return written, fixed


def _second_scale(bag: Bag, between: Tensor, by: str) -> Float[Tensor, " pos"]:
    if by == "token":
        return bag.layer.norm2.scale(between)
    if by == "position":
        return by_position(bag.scales[1], bag.start, len(between))
    return torch.full((len(between),), float(bag.scales[1].mean()), device="cpu")


def _others(bag: Bag, direct: Tensor) -> Float[Tensor, "pos model"]:
    """Return the other heads' output, as if they attended only to the current token."""
    layer = bag.layer
    others = [head for head in range(len(layer.w_o)) if head not in bag.heads]
    alone = layer.values(direct)[others]
    return torch.einsum("hnd,hdm->nm", alone, layer.w_o[others]) + layer.b_o


def _constant_values(bag: Bag, scale: Float[Tensor, " pos"]) -> Float[Tensor, "head pos d"]:
    """Return the part of the values that comes from positions and biases.

    A start token has its exact values instead, divided by the denominators.
    """
    layer, chosen = bag.layer, list(bag.heads)
    scaled = scale[:, None] * layer.positions[: len(scale)]
    values = scaled @ layer.w_v[chosen] + layer.b_v[chosen][:, None]
    if bag.start:
        values[:, 0] = bag.start_values / bag.denominators[:, None]
    return values
