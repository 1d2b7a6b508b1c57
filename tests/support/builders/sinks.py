"""Models without training whose sinks follow one known thing."""

import math
from pathlib import Path

import torch

from tests.support.builders.made import START, gpt2_config, save
from tests.support.builders.positions import blank_gpt2, undo_norm

HEIGHT = 12.0


def one_cause(path: Path, T: int = 37) -> Path:
    """A GPT-2 without training whose heads have a sink by position 0, by the start token, or not.

    Layer 0, whatever the query: head 0 scores position id 0 at 12 and all others at 0; head 1
    scores the start token at 12 and all others at 0; head 2 is uniform. Head 1 writes a mark `m`:
    the attention to the start token, less that to all other tokens.

    Layer 1: head 0 scores position id 0 at `12 m(n)` from the query `n`, so the queries decide;
    heads 1 and 2 are uniform.

    A token's vector says whether it is the start token, a position's whether it is 0, the mark is
    +1 or -1 up to `2 T e^-12`, and stands with both signs: all sums have one mean and one length,
    and the norms undo both.
    """
    width, d = 6, 2
    start, zero, mark = 0, 2, 4
    model = blank_gpt2(gpt2_config(T, n_embd=width, n_head=3, n_layer=2, n_inner=1))
    body, unscale = model.transformer, math.sqrt(d)
    with torch.no_grad():
        body.wte.weight[:, start + 1] = body.wpe.weight[:, zero + 1] = 1.0
        body.wte.weight[START, start : start + 2] = torch.tensor([1.0, 0.0])
        body.wpe.weight[0, zero : zero + 2] = torch.tensor([1.0, 0.0])
        stream = body.wte.weight[START] + body.wpe.weight[0]
        undo_norm(body.h[0].ln_1, stream)
        stream[mark : mark + 2] = torch.tensor([1.0, -1.0])
        undo_norm(body.h[1].ln_1, stream)
        first, second = (block.attn for block in body.h)
        for head, reads in enumerate((zero, start)):
            first.c_attn.bias[head * d] = HEIGHT * unscale
            first.c_attn.weight[reads, width + head * d] = 1.0
        value = 2 * width + d
        first.c_attn.weight[start, value], first.c_attn.weight[start + 1, value] = 1.0, -1.0
        first.c_proj.weight[d, mark], first.c_proj.weight[d, mark + 1] = 1.0, -1.0
        second.c_attn.weight[mark, 0] = HEIGHT * unscale
        second.c_attn.weight[zero, width] = 1.0
    return save(model, path, T)
