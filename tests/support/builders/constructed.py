"""Models without training whose kernels are known."""

import math
import random
from pathlib import Path

import torch
from torch import Tensor

from tests.support.builders.made import START, VOCABULARY, gpt2_config, save
from tests.support.builders.positions import blank_gpt2, of_length_one, undo_norm

LOOK_BACK_SCORE = 16.0


def look_back(path: Path, k: int, T: int = 37, tau: float = 5.0) -> Path:
    """A GPT-2 without training whose layer-0 kernels are known, whatever the tokens.

    Attention in layer 0, and so every kernel (with `skip = 0`), for visible `i`:

    - head 0 looks back `k` tokens: for `n >= k`, weight `e^16` at `i = n - k`, else 1, that is
      `A(n, n-k) = e^16 / (e^16 + n) > 0.999`; for `n < k`, uniform;
    - head 1 is uniform: `A(n, i) = 1 / (n + 1)`;
    - head 2 decays: `A(n, i)` proportional to `exp(-(n - i) / tau)`, exactly.

    Layer 1 is uniform in every head. Attention and MLP write nothing, so the stream stays at
    the embeddings; layer 1 reads the same vectors as layer 0.

    Each position's vector is a one-hot code, a ramp `n / T`, and what the ramp lacks to a constant
    length; tokens live in other dimensions, as signs that add up to 0. So all sums of the two have
    one mean and one length, and the norm's weight and bias undo it: post-ln1 is the stream itself.
    """
    heads, head_width, signs = 3, T + (T % 2), 12
    width, ramp, tokens = heads * head_width, T, T + 4
    config = gpt2_config(n_positions=T, n_embd=width, n_head=heads, n_layer=2, n_inner=1)
    model = blank_gpt2(config)
    body, position = model.transformer, torch.arange(T)
    with torch.no_grad():
        body.wpe.weight[position, position] = 1.0
        body.wpe.weight[:, ramp:tokens] = of_length_one(position[:, None] / T)
        body.wte.weight[:, tokens : tokens + signs] = balanced_signs(signs)
        for block in body.h:
            undo_norm(block.ln_1, body.wpe.weight[T // 2] + body.wte.weight[START])

        query_key, bias = body.h[0].attn.c_attn.weight, body.h[0].attn.c_attn.bias
        unscale = math.sqrt(head_width)
        earlier = position[: T - k]
        query_key[earlier + k, earlier] = LOOK_BACK_SCORE * unscale
        query_key[position, width + position] = 1.0
        bias[2 * head_width] = unscale * T / tau
        query_key[ramp, width + 2 * head_width] = 1.0
    return save(model, path, T)


def balanced_signs(dimensions: int) -> Tensor:
    """A different vector of as many +0.5 as -0.5 for each token, [vocabulary, dimensions]."""
    generator, found = random.Random(31), {}
    signs = [0.5, -0.5] * (dimensions // 2)
    while len(found) < VOCABULARY:
        generator.shuffle(signs)
        found[tuple(signs)] = None
    return torch.tensor(list(found))
