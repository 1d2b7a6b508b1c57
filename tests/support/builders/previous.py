"""Models without training whose previous-token heads work in a known way."""

import math
from pathlib import Path

import torch
from torch import nn

from tests.support.builders.constructed import LOOK_BACK_SCORE
from tests.support.builders.made import START, VOCABULARY, gpt2_config, save
from tests.support.builders.positions import blank_gpt2, of_length_one, undo_norm


def dark_head(path: Path, T: int = 37, slope: float = 3.0, depth: float = 12.0) -> Path:
    """A GPT-2 without training with a previous-token head by negative self-attention.

    Layer 0, for all `i`, also `i > n`:

    - head 0: `s(n, i) = slope i - depth [token_i == token_n]`;
    - head 1 is uniform: `A(n, i) = 1 / (n + 1)`.

    Where all tokens differ, `A(n, n-k)` is proportional to `e^(-slope k)` for `k >= 1`, and to
    `e^(-depth)` for `k = 0`; so the largest is `k = 1`, for `n >= 1`. The mean raw score at offset
    `k` is `slope (start + T - 1 - k) / 2`, less `depth` at `k = 0`: contrasts `-depth` and 0.
    Where token `n` is that of `n - 1`, and no other like it, attention goes to `n - 2`, and
    `A(n, n-1)` falls to about `e^(slope - depth)`, for `n >= 2`.

    Layer 1 is uniform in both heads. Nothing writes: the stream stays at the embeddings, and
    post-ln1 is the stream itself, since tokens are one-hot, and positions have mean 0 and length
    `sqrt(2)`: a ramp `i / T`, what it lacks to 1, and both with the other sign.
    """
    head_width, ramp = VOCABULARY + 1, VOCABULARY
    width = 2 * head_width
    config = gpt2_config(T, n_embd=width, n_head=2, n_layer=2, n_inner=1)
    model = blank_gpt2(config)
    body, token, unscale = model.transformer, torch.arange(VOCABULARY), math.sqrt(head_width)
    with torch.no_grad():
        body.wte.weight[token, token] = 1.0
        body.wpe.weight[:, ramp : ramp + 4] = of_length_one(torch.arange(T)[:, None] / T)
        for block in body.h:
            undo_norm(block.ln_1, body.wpe.weight[T // 2] + body.wte.weight[START])

        query_key, bias = body.h[0].attn.c_attn.weight, body.h[0].attn.c_attn.bias
        query_key[token, token] = -depth * unscale
        query_key[token, width + token] = 1.0
        bias[ramp] = slope * T * unscale
        query_key[ramp, width + ramp] = 1.0
    return save(model, path, T)


def copy_previous_token(body: nn.Module, T: int, width: int, unscale: float) -> None:
    """Let head 0 of layer 0 copy the token one back, at `T` positions, in a stream so wide.

    Tokens, copies and positions are one-hot, behind each other; both layers' norms are undone.
    """
    copies, places = VOCABULARY, 2 * VOCABULARY
    token, earlier = torch.arange(VOCABULARY), torch.arange(T - 1)
    with torch.no_grad():
        body.wte.weight[token, token] = 1.0
        body.wpe.weight[torch.arange(T), places + torch.arange(T)] = 1.0
        stream = body.wte.weight[START] + body.wpe.weight[0]
        undo_norm(body.h[0].ln_1, stream)
        stream[copies] = 1.0
        undo_norm(body.h[1].ln_1, stream)
        first = body.h[0].attn
        first.c_attn.weight[places + earlier + 1, earlier] = LOOK_BACK_SCORE * unscale
        first.c_attn.weight[places + earlier, width + earlier] = 1.0
        first.c_attn.weight[token, 2 * width + token] = 1.0
        first.c_proj.weight[token, copies + token] = 1.0


def aggregator(path: Path, T: int = 37, height: float = 12.0) -> Path:
    """A GPT-2 without training with a previous-token head that looks for a copied code.

    - Layer 0, head 0 looks one back, whatever the tokens: for `n >= 1`, weight `e^16` at
      `i = n - 1` and 1 elsewhere, `A(n, n-1) = e^16 / (e^16 + n)`. It copies the one-hot code of
      the token there into dimensions of its own, the "previous token" (at `n = 0`: its own).
    - Layer 1, head 0: `s(n, i) = height [token_(n-1) == token_i]` for all `i`, to within
      `height T e^-16`, since layer 0 copies that much of other tokens. Where all tokens differ,
      `A(n, n-1) = e^height / (e^height + n)` for `n >= 1`, and the raw scores have a bright first
      diagonal: with `start = 1`, contrasts 0 at offset 0 and `height` at offset 1.
    - Head 1 is uniform in both layers. Layer 1 writes nothing.

    Tokens and positions are one-hot, so all streams have one mean, and one length (before layer 1
    to a relative `T e^-16`); the norms undo both: post-ln1 is the stream itself.
    """
    copies, places = VOCABULARY, 2 * VOCABULARY
    head_width = (places + T + 1) // 2
    width, unscale = 2 * head_width, math.sqrt(head_width)
    config = gpt2_config(T, n_embd=width, n_head=2, n_layer=2, n_inner=1)
    model = blank_gpt2(config)
    body, token = model.transformer, torch.arange(VOCABULARY)
    copy_previous_token(body, T, width, unscale)
    second = body.h[1].attn
    with torch.no_grad():
        second.c_attn.weight[copies + token, token] = height * unscale
        second.c_attn.weight[token, width + token] = 1.0
    return save(model, path, T)
