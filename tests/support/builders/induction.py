"""Models without training with an induction circuit, and with heads that average random values."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from tests.support.builders.made import (
    START,
    VOCABULARY,
    attn_only_config,
    attn_only_skeleton,
    gpt2_config,
    save,
    save_attn_only,
)
from tests.support.builders.positions import blank, blank_gpt2, undo_norm
from tests.support.builders.previous import copy_previous_token

INDUCTION_CONTEXT = 37
AVERAGED_WIDTH = 11
SELF_SCORE = 20.0


def induction(path: Path, height: float = 4.0, gain: float = 2.0, slope: float = 0.0) -> Path:
    """An attention-only model without training with an induction circuit; context 37.

    - Layer 0, head 0 looks one back, whatever the tokens: for `n >= 1`, weight `e^16` at
      `i = n - 1` and 1 elsewhere. It copies the token there into dimensions of its own, the
      "previous token" (at `n = 0`: its own token).
    - Layer 1, head 0: `s(n, i) = height [token_(i-1) == token_n] + slope i`, to within
      `height T e^-16`. It writes `gain` times the code of each token into the dimensions that are
      unembedded. See `induction_truth`.
    - Head 1 is uniform in both layers, and writes nothing.

    Tokens and positions are one-hot, so all streams have one mean, and one length; the norms undo
    both: post-ln1 is the stream itself.
    """
    T, copies, places = INDUCTION_CONTEXT, VOCABULARY, 2 * VOCABULARY
    head_width = _head_width()
    width, unscale = 2 * head_width, math.sqrt(head_width)
    config = attn_only_config(2, 2, head_width, T)
    model, token = blank(attn_only_skeleton(config)), torch.arange(VOCABULARY)
    nn.init.ones_(model.transformer.ln_f.weight)
    copy_previous_token(model.transformer, T, width, unscale)
    second = model.transformer.h[1].attn
    with torch.no_grad():
        second.c_attn.weight[token, token] = height * unscale
        second.c_attn.weight[copies + token, width + token] = 1.0
        second.c_attn.bias[VOCABULARY] = slope * unscale
        second.c_attn.weight[places + torch.arange(T), width + VOCABULARY] = torch.arange(T) * 1.0
        second.c_attn.weight[token, 2 * width + token] = 1.0
        second.c_proj.weight[token, token] = gain
    return save_attn_only(model, path, config, without=".ln_2.")


def induction_truth(
    ids: Sequence[int], height: float = 4.0, gain: float = 2.0, slope: float = 0.0
) -> tuple[list[float], list[float]]:
    """Attention of the last token in layer 1, head 0, of `induction`; probabilities after it.

    The stream at the end holds 1 at the token, at the position, and at the copy of the previous
    token, and `gain` times the attention to each token. The last norm takes off its mean, and
    divides by its spread, which are sums over these few entries.
    """
    last, before = ids[-1], [ids[0], *ids[:-1]]
    powers = [
        math.exp(height * (before[i] == last) + slope * (i - len(ids))) for i in range(len(ids))
    ]
    attention = [power / math.fsum(powers) for power in powers]
    entries = [0.0] * VOCABULARY
    entries[last] = 1.0
    for i, weight in zip(ids, attention, strict=True):
        entries[i] += gain * weight
    width = 2 * _head_width()
    middle = (math.fsum(entries) + 2) / width
    spread = math.sqrt((math.fsum(x * x for x in entries) + 2) / width - middle**2 + 1e-5)
    shares = [math.exp((x - middle) / spread) for x in entries]
    return attention, [share / math.fsum(shares) for share in shares]


def _head_width() -> int:
    return (2 * VOCABULARY + INDUCTION_CONTEXT + 1) // 2


def averages(path: Path, T: int = 31) -> Path:
    """A GPT-2 without training whose layer-0 heads average random values, or do not.

    Tokens are vectors of 11 signs and, beside them, of the opposite signs; those of tokens 1 to
    292 add up to 0. There are no positions. Layer 0, whatever the order of the tokens:

    - head 0 is uniform, so that `z_n` is the mean of the signs of all visible tokens. For
      different tokens out of those 292, `E||z_n||^2 = 11 / m (1 - (m - 1) / 291)`, `m = n + 1`:
      the variance of a mean of `m` draws without replacement;
    - head 1 attends to its own token, `A(n, n) > 1 - T e^-40`: `||z_n||^2 = 11`.

    Nothing writes; layer 1 is uniform.
    """
    signs, heads = _paired_signs(), 2
    width, unscale = 2 * AVERAGED_WIDTH, math.sqrt(AVERAGED_WIDTH)
    config = gpt2_config(T, n_embd=width, n_head=heads, n_layer=2, n_inner=1)
    model, each = blank_gpt2(config), torch.arange(AVERAGED_WIDTH)
    body = model.transformer
    with torch.no_grad():
        body.wte.weight.copy_(torch.cat([signs, -signs], dim=1))
        for block in body.h:
            undo_norm(block.ln_1, body.wte.weight[START])
        joint = body.h[0].attn.c_attn.weight
        joint[each, AVERAGED_WIDTH + each] = SELF_SCORE * unscale
        joint[each, width + AVERAGED_WIDTH + each] = 1.0
        for head in range(heads):
            joint[each, 2 * width + head * AVERAGED_WIDTH + each] = 1.0
    return save(model, path, T)


def _paired_signs() -> Tensor:
    """Different vectors of signs for all tokens; that of token `146 + t` is the opposite of `t`."""
    half = (VOCABULARY - 1) // 2
    order = torch.randperm(2 ** (AVERAGED_WIDTH - 1), generator=torch.Generator().manual_seed(41))
    bits = order[: half + 1, None] >> torch.arange(AVERAGED_WIDTH) & 1
    signs = 2.0 * bits - 1  # the last sign is always -1, so that none is another's opposite
    return torch.cat([signs, -signs[1:]])
