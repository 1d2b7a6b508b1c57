"""A model without training whose learned positions are a helix."""

import math
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from tests.support.builders.made import VOCABULARY, gpt2_config, save

COORDINATES = 4
HELIX_WIDTH, HELIX_HEADS, HELIX_HEAD_WIDTH = 20, 4, 5
SELF_SCORE = 400.0
TURNS, HEIGHT, THETA, STRENGTH = 5, 1.0, 20.0, 4.0


def helix(path: Path, T: int = 53) -> Path:
    """A GPT-2 without training whose positions lie on a helix, with heads that read it.

    With `w = 2 pi TURNS / T` and `c_i = i - (T - 1) / 2`, position `i` has the coordinates
    `cos(w c_i)`, `sin(w c_i)`, `rise_i = HEIGHT c_i / c_{T-1}`, and `rest_i`, which is what
    `rise_i` lacks to the length `4 HEIGHT`. Coordinate `j` stands in dimension `2j`, and with the
    other sign in `2j + 1`; dimensions 8 to 15 are empty, and tokens stand on a circle in 16 to 19.
    So all sums of the two have mean 0 and one length, and the norm's weight undoes it. It does so
    in every layer: post-ln1 is the stream itself.

    Scores of layer 0, whatever the tokens, for all `i`:

    - head 0 reads the tangent: `s(n, i) = STRENGTH sin(w (i - n))`;
    - head 1 reads the radius: `s(n, i) = STRENGTH cos(w (i - n))`;
    - head 2 attends to itself: `s(n, i) = 400 x (dot product of the coordinates)`, by default with
      `A(n, i) < 1e-18` elsewhere. It writes `tan(THETA)` times the four coordinates of `n` into
      dimensions 8 to 15, in the same way;
    - head 3 is uniform, and so are all heads of layers 1 and 2. They write nothing.

    Hence `X^1 = X^2 = (X^0, tan(THETA) X^0)` for every token: explained variance is that of
    `helix_truth` in every layer; the canonical angles of the right vectors of `X^0` and `X^1` are
    all `THETA` (degrees), for any number of them; all other angles, and those of the left vectors,
    are 0.
    """
    config = gpt2_config(T, n_embd=HELIX_WIDTH, n_head=HELIX_HEADS, n_layer=3, n_inner=1)
    model = blank_gpt2(config)
    body, places, tilt = model.transformer, COORDINATES * 2, math.tan(math.radians(THETA))
    with torch.no_grad():
        coordinates = torch.tensor(helix_coordinates(T))
        body.wpe.weight[:, :places] = _with_both_signs(coordinates)
        angles = torch.arange(VOCABULARY) * (2 * math.pi / VOCABULARY)
        circle = torch.stack([angles.cos(), angles.sin()], dim=1)
        body.wte.weight[:, 2 * places :] = _with_both_signs(circle)

        stream = body.wpe.weight[0] + body.wte.weight[0]
        undo_norm(body.h[0].ln_1, stream)
        stream[places : 2 * places] = tilt * stream[:places]
        undo_norm(body.h[1].ln_1, stream)
        undo_norm(body.h[2].ln_1, stream)
        _helix_heads(body.h[0].attn, tilt)
    return save(model, path, T)


def helix_coordinates(T: int = 53) -> list[list[float]]:
    """The coordinates of `helix`'s positions: cosine, sine, rise, and rest, [pos][4]."""
    centre, w, rows = (T - 1) / 2, 2 * math.pi * TURNS / T, []
    for i in range(T):
        rise = HEIGHT * (i - centre) / centre
        rest = math.sqrt((4 * HEIGHT) ** 2 - rise**2)
        rows.append([math.cos(w * (i - centre)), math.sin(w * (i - centre)), rise, rest])
    return rows


def helix_truth() -> list[float]:
    """Explained variance of all components of `helix`'s centred positions, in descending order."""
    rows = torch.tensor(helix_coordinates(), dtype=torch.float64)
    values = torch.linalg.eigvalsh(rows.T.cov()).flip(0)
    return (values / values.sum()).tolist()


def _with_both_signs(coordinates: Tensor) -> Tensor:
    """`[n, j]` to `[n, 2 j]`: each coordinate, followed by its negative."""
    return torch.stack([coordinates, -coordinates], dim=2).flatten(1)


def _helix_heads(attention: nn.Module, tilt: float) -> None:
    """Set queries, keys, values, and output of heads 0, 1, and 2."""
    query_key_value, unscale = attention.c_attn.weight, math.sqrt(HELIX_HEAD_WIDTH)
    tangent, radius, own = (HELIX_HEAD_WIDTH * head for head in range(3))
    key, value = HELIX_WIDTH, 2 * HELIX_WIDTH
    cosine, sine = 0, 2

    query_key_value[cosine, tangent] = STRENGTH * unscale
    query_key_value[sine, tangent + 1] = -STRENGTH * unscale
    query_key_value[sine, key + tangent] = query_key_value[cosine, key + tangent + 1] = 1.0
    for slot, dimension in enumerate((cosine, sine)):
        query_key_value[dimension, radius + slot] = STRENGTH * unscale
        query_key_value[dimension, key + radius + slot] = 1.0
    for slot in range(COORDINATES):
        query_key_value[2 * slot, own + slot] = SELF_SCORE * unscale
        query_key_value[2 * slot, key + own + slot] = 1.0
        query_key_value[2 * slot, value + own + slot] = 1.0
        fresh = 2 * COORDINATES + 2 * slot
        attention.c_proj.weight[own + slot, fresh] = tilt
        attention.c_proj.weight[own + slot, fresh + 1] = -tilt


def of_length_one(numbers: Tensor) -> Tensor:
    """Numbers, and what their squares lack to 1, with both signs: `[n, k]` to `[n, 2 (k + 1)]`."""
    rest = (1 - (numbers**2).sum(dim=1, keepdim=True)).clamp(min=0).sqrt()
    return _with_both_signs(torch.cat([numbers, rest], dim=1)).float()


def blank(model: nn.Module) -> nn.Module:
    """Set all weights of a model to 0, and return it."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def blank_gpt2(config: GPT2Config) -> GPT2LMHeadModel:
    """A GPT-2 whose weights are all 0, but for its last norm's, which are 1."""
    model = blank(GPT2LMHeadModel(config))
    nn.init.ones_(model.transformer.ln_f.weight)
    return model


def undo_norm(norm: nn.LayerNorm, vector: Tensor) -> None:
    """Let a norm give every vector of this one's mean and length back as it is."""
    one = vector.double()
    with torch.no_grad():
        norm.weight.fill_((one.var(correction=0) + norm.eps).sqrt().item())
        norm.bias.fill_(one.mean().item())
