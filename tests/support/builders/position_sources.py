"""A model without training in which one component alone passes position on."""

import math
from pathlib import Path

import torch
from torch.nn.functional import gelu

from tests.support.builders.constructed import LOOK_BACK_SCORE
from tests.support.builders.made import START, VOCABULARY, gpt2_config, save
from tests.support.builders.positions import blank_gpt2, undo_norm

DRIVE = 5.0


def passed_on(path: Path, by: str, T: int = 29, height: float = 7.0) -> Path:
    """A GPT-2 of two layers whose layer-1 head 0 reads position from one component.

    Tokens, positions, and the copies that layer 0 writes are one-hot, in dimensions of their own,
    so all streams have one mean and one length, and the norms undo both.

    - `by="head"`: layer 0, head 0 looks one back and copies the position of what it sees (to within
      `T e^-16`); the copy at `i` is `i - 1`, at 0 it is 0.
    - `by="mlp"`: MLP 0 copies the position of its token; the copy at `i` is `i`.
    - Layer 1, head 0 reads the copies alone: `s(n, i) = height` at `i = n - 1`, else 0, for
      `n >= 2`; its kernel is `e^height` at the token before, 1 elsewhere, whatever the tokens.
      Head 1 is uniform.
    """
    places, copies = VOCABULARY, VOCABULARY + T
    head_width = (copies + T + 1) // 2
    width, unscale = 2 * head_width, math.sqrt(head_width)
    model = blank_gpt2(gpt2_config(T, n_embd=width, n_head=2, n_layer=2, n_inner=T))
    body, token, at = model.transformer, torch.arange(VOCABULARY), torch.arange(T)
    with torch.no_grad():
        body.wte.weight[token, token] = 1.0
        body.wpe.weight[at, places + at] = 1.0
        stream = body.wte.weight[START] + body.wpe.weight[0]
        undo_norm(body.h[0].ln_1, stream)
        undo_norm(body.h[0].ln_2, stream)
        stream[copies] = 1.0
        undo_norm(body.h[1].ln_1, stream)
        first, mlp = body.h[0].attn, body.h[0].mlp
        back = 1 if by == "head" else 0
        if by == "head":
            first.c_attn.weight[places + at[1:], at[:-1]] = LOOK_BACK_SCORE * unscale
            first.c_attn.weight[places + at[:-1], width + at[:-1]] = 1.0
            first.c_attn.weight[places + at, 2 * width + at] = 1.0
            first.c_proj.weight[at, copies + at] = 1.0
        else:
            mlp.c_fc.weight[places + at, at] = DRIVE
            mlp.c_proj.weight[at, copies + at] = 1 / gelu(torch.tensor(DRIVE), approximate="tanh")
        second = body.h[1].attn.c_attn.weight
        queries, codes = at[1 + back :], at[: T - 1 - back]  # the copy at n - 1 is n - 1 - back
        second[places + queries, codes] = height * unscale
        second[copies + at, width + at] = 1.0
    return save(model, path, T)
