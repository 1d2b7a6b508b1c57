"""A model without training with a sink, and a head that looks at content alone."""

import math
from pathlib import Path

import torch

from tests.support.builders.constructed import LOOK_BACK_SCORE
from tests.support.builders.made import START, VOCABULARY, gpt2_config, save
from tests.support.builders.positions import blank_gpt2, undo_norm


def sink_and_content(path: Path, T: int = 37, rare: int = 29, height: float = 12.0) -> Path:
    """A GPT-2 without training with two heads in one layer, whatever the order of tokens.

    - Head 0 has a sink: `s(n, 0) = 16`, all other scores are 0.
    - Head 1 looks at content: `s(n, i) = height` where token `i` is a multiple of `rare`, else 0.

    Tokens and positions are one-hot, so all streams have one mean and one length, and the norm
    undoes them: post-ln1 is the stream itself.
    """
    places = VOCABULARY
    head_width = (places + T + 1) // 2
    model = blank_gpt2(gpt2_config(T, n_embd=2 * head_width, n_head=2, n_layer=1, n_inner=1))
    body, token, unscale = model.transformer, torch.arange(VOCABULARY), math.sqrt(head_width)
    width = 2 * head_width
    with torch.no_grad():
        body.wte.weight[token, token] = 1.0
        body.wpe.weight[torch.arange(T), places + torch.arange(T)] = 1.0
        undo_norm(body.h[0].ln_1, body.wte.weight[START] + body.wpe.weight[0])
        attention = body.h[0].attn.c_attn
        attention.bias[0] = attention.bias[head_width] = unscale
        attention.weight[places, width] = LOOK_BACK_SCORE
        attention.weight[token[::rare], width + head_width] = height
    return save(model, path, T)
