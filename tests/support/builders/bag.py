"""Models whose bag of tokens is known, and how experiments on them are asked for."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import GPTNeoConfig, GPTNeoForCausalLM

from tests.support.builders import contextual
from tests.support.builders.constructed import balanced_signs
from tests.support.builders.made import START, VOCABULARY, gpt2_config, save
from tests.support.builders.positions import blank, blank_gpt2, of_length_one, undo_norm
from tests.support.oracles_bag import Bag as OracleBag
from tests.support.oracles_bag import Setting
from tests.support.passes import loaded

T, WIDTH, HEADS, HEAD_WIDTH = 41, 33, 3, 11
SELF_STEP, BIAS = 12.0, 0.25
CODE, MATCH, AVOID, COPIES_T, NEAR_WINDOW = 48, 5.0, 200.0, 47, 12


def reading(
    path: Path,
    strengths: np.ndarray,
    neurons: Sequence[Mapping[int, float]],
    biases: Sequence[float] | None = None,
    direct: float = 0.0,
) -> Path:
    """A GPT-2 of one layer without training whose bag predicts its neurons without any error.

    Tokens have a strength in each of up to 5 sources. Heads 0 and 2 are uniform, without content,
    and copy the even and the odd sources `s` to the dimensions `2 s` and, with the other sign,
    `2 s + 1`; head 2 adds `i / T` of every
    position `i` to source 0, head 0 a bias of `BIAS`. Head 1 attends to its own token, and copies
    source 0 to one more dimension. Every vector that enters the first norm has mean 0 and one
    length, and the norm's weight undoes it; the second norm's weights are 1. `truth` says what
    neurons see.

    Args:
        path: the directory to fill.
        strengths: `[token, source]`; their squares add up to at most 1 for each token.
        neurons: for each neuron the weight of every source that it reads.
        biases: of the neurons.
        direct: how much every neuron reads of source 0 of the current token, directly and through
            head 1, and of the current position.
    """
    sources = strengths.shape[1]
    own = 2 * sources
    token, ramp, end = own + 2, own + 2 + 2 * (sources + 1), own + 6 + 2 * (sources + 1)
    sizes = {"n_embd": WIDTH, "n_head": HEADS, "n_layer": 1, "n_inner": len(neurons)}
    model = blank_gpt2(gpt2_config(T, **sizes))
    body, block = model.transformer, model.transformer.h[0]
    with torch.no_grad():
        body.wte.weight[:, token:ramp] = of_length_one(torch.from_numpy(strengths))
        body.wpe.weight[:, ramp:end] = of_length_one(torch.arange(T).double()[:, None] / T)
        undo_norm(block.ln_1, body.wte.weight[0] + body.wpe.weight[0])
        block.ln_2.weight.fill_(1.0)
        _heads(block.attn, sources, token, ramp)
        for number, weights in enumerate(neurons):
            for source, weight in weights.items():
                block.mlp.c_fc.weight[2 * source, number] = weight / 2
                block.mlp.c_fc.weight[2 * source + 1, number] = -weight / 2
            block.mlp.c_fc.weight[[token, ramp, own], number] = direct
            block.mlp.c_proj.weight[number, number // 2] = (-1.0) ** number
        if biases is not None:
            block.mlp.c_fc.bias[:] = torch.tensor(biases)
    return save(model, path, T)


def _heads(attention: nn.Module, sources: int, token: int, ramp: int) -> None:
    """Set the three heads of `reading`."""
    weight, bias, value = attention.c_attn.weight, attention.c_attn.bias, 2 * WIDTH
    bias[HEAD_WIDTH] = SELF_STEP * T * math.sqrt(HEAD_WIDTH)
    weight[ramp, WIDTH + HEAD_WIDTH] = 1.0
    routes = [(0 if s % 2 == 0 else 2, s, token + 2 * s, 2 * s) for s in range(sources)]
    routes += [(1, 0, token, 2 * sources), (2, HEAD_WIDTH - 1, ramp, 0)]
    for head, slot, read, write in routes:
        weight[read, value + head * HEAD_WIDTH + slot] = 1.0
        attention.c_proj.weight[head * HEAD_WIDTH + slot, write] = 1.0
        attention.c_proj.weight[head * HEAD_WIDTH + slot, write + 1] = -1.0
    bias[value] = BIAS


def truth(
    strengths: np.ndarray,
    neurons: Sequence[Mapping[int, float]],
    text: Sequence[int],
    biases: Sequence[float] | None = None,
    direct: float = 0.0,
) -> tuple[list[list[float]], list[float]]:
    """Pre-activations `[pos][neuron]` of `reading`, and the second norm's scale `[pos]`."""
    found, scales = [], []
    for n in range(len(text)):
        seen = [
            math.fsum(float(strengths[t, s]) for t in text[: n + 1]) / (n + 1)
            for s in range(strengths.shape[1])
        ]
        seen[0] += BIAS + math.fsum(i / T for i in range(n + 1)) / (n + 1)
        own = float(strengths[text[n], 0])
        squares = 4 + 2 * math.fsum(x * x for x in seen) + 2 * own**2
        scales.append(1 / math.sqrt(squares / WIDTH + 1e-5))
        reads = [math.fsum(w * seen[s] for s, w in each.items()) for each in neurons]
        added = direct * (2 * own + n / T)
        found.append([
            scales[n] * (read + added) + (0.0 if biases is None else biases[j])
            for j, read in enumerate(reads)
        ])  # fmt: skip
    return found, scales


def copies(path: Path, window: int | None = None) -> Path:
    """A GPT-Neo of one layer without training, two heads of which look for copies of a token.

    Head 0 attends to all tokens that are the current one, itself among them, equally; head 1 is
    uniform; head 2 attends to such tokens, but not to itself. Every head sees the last `window`
    tokens only, if there is one.
    """
    width = CODE + COPIES_T
    config = GPTNeoConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=COPIES_T,
        hidden_size=3 * width,
        num_layers=1,
        attention_types=[[["global" if window is None else "local"], 1]],
        num_heads=3,
        intermediate_size=1,
        window_size=window or 5,
        bos_token_id=START,
        eos_token_id=START,
    )
    model = blank(GPTNeoForCausalLM(config))
    with torch.no_grad():
        body, code, place = model.transformer, torch.arange(CODE), torch.arange(COPIES_T)
        body.wte.weight[:, :CODE] = balanced_signs(CODE)
        body.wpe.weight[place, CODE + place] = 1.0
        undo_norm(body.h[0].ln_1, body.wte.weight[0] + body.wpe.weight[0])
        attention = body.h[0].attn.attention
        for first in (0, 2 * width):
            attention.q_proj.weight[first + code, code] = MATCH
            attention.k_proj.weight[first + code, code] = 1.0
        slots = 2 * width + CODE + place
        attention.q_proj.weight[slots, CODE + place] = -AVOID
        attention.k_proj.weight[slots, CODE + place] = 1.0
    return save(model, path, COPIES_T)


def study(path: Path, windows: np.ndarray, start: bool = True) -> tuple:
    """As `contextual.study`, of a model that is freshly loaded: bags are kept beside it."""
    return contextual.study(path, windows, start, load=loaded.__wrapped__)


def studied(
    path: Path,
    windows: np.ndarray,
    contexts: int,
    heads: tuple[int, ...],
    query: int,
    start: bool = True,
    window: int | None = None,
) -> tuple:
    """The same, and the bag of these heads by plain loops; `window` is layer 0's."""
    subject, main = study(path, windows, start)
    the = subject.single_id(" the")
    setting = Setting(path, windows, contexts, heads, query, the, int(start), window)
    return subject, main, OracleBag(setting)
