"""Rotary angles scaled for a longer context, as an edit of one forward pass."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from poskernel_core.common.errors import NotInModel
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.rotation import speeds, turns

Scaling = Literal["own", "linear", "YaRN"]
GEOMETRIC = 1e-3
"""Largest relative deviation of the speeds from those of one base."""


def scaled_speeds(
    speed: Float[np.ndarray, " pair"], scaling: Scaling, factor: float, length: int
) -> tuple[Float[np.ndarray, " pair"], float]:
    """Return the speeds (radians per token) scaled from ``length``, and the factor of cos and sin.

    YaRN is computed by transformers, from the base that the speeds follow.
    """
    if scaling == "own" or factor == 1:
        return speed, 1.0
    if scaling == "linear":
        return speed / factor, 1.0
    every, place = _distinct(speed)
    pairs = np.arange(len(every)) / max(1, len(every) - 1)
    if (
        len(every) < 2
        or every[-1] <= 0
        or np.abs(every[-1] ** -pairs * every - 1).max() > GEOMETRIC
    ):
        raise NotInModel("YaRN scales angles of one base, and those of this model follow none.")
    width = 2 * len(every)
    config = PreTrainedConfig(
        head_dim=width,
        hidden_size=width,
        num_attention_heads=1,
        max_position_embeddings=round(factor * length),
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": float(every[-1] ** (-len(every) / (len(every) - 1))),
            "factor": float(factor),
            "original_max_position_embeddings": length,
        },
    )
    with torch.device("cpu"):  # transformers makes some tensors without a device
        scaled, attention = ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
    return scaled.double().numpy()[place], float(attention)


def _distinct(speed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct speeds, fastest first, and the place of each speed among them."""
    order = np.argsort(-speed, kind="stable")
    steps = np.diff(speed[order]) < -GEOMETRIC * speed[order][1:]
    place = np.empty(len(speed), dtype=np.int64)
    place[order] = np.concatenate([[0], np.cumsum(steps)])
    return speed[order][np.concatenate([[True], steps])], place


@dataclass(frozen=True)
class ScaledRotation(Edit):
    """The model's rotation with its angles scaled by ``factor``, for contexts beyond ``length``.

    The scaled angles are those of texts of ``length`` tokens, whatever the model itself does in
    longer ones. The cosines and sines of the pass are replaced; the model's own are not touched.
    """

    scaling: Scaling
    factor: float
    length: int
    keeps_attention = True  # queries and keys change before it

    @property
    def angles_of(self) -> int | None:
        """``length``; the model's own angles are those of the pass."""
        return None if self.scaling == "own" or self.factor == 1 else self.length

    def rotation(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        if self.angles_of is None:
            return cos, sin
        speed, size = speeds(cos, sin)
        speed, attention = scaled_speeds(speed, self.scaling, self.factor, self.length)
        return turns(cos, speed, attention * size)
