"""A model with a head that is position alone and a head that is content alone, and its texts."""

import itertools
import math
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.support.builders.made import START, rotary_sizes, save
from tests.support.builders.positions import blank

POSITION, CONTENT, NOTHING = range(3)
MARKED, UNMARKED, WITNESS, TARGETS, FILLER = (1, 2), (3, 4), (5, 6), (7, 8, 9, 10), 11
LENGTH, HEADS, WIDTH, STREAM = 29, 3, 4, 9


def position_and_content(path: Path) -> Path:
    """A Llama of one layer without training. What follows is told by two heads and nothing else.

    - head `POSITION` attends by `cos(n - i)`, and reads which witness stands at position 5;
    - head `CONTENT` attends to the marked token, wherever it stands, and reads which one it is;
    - head `NOTHING` attends to all keys alike, and writes nothing.

    The unmarked token says the opposite of the marked one, so that by place alone both cancel.
    """
    sizes = rotary_sizes(LENGTH, HEADS, HEADS, WIDTH) | {
        "num_hidden_layers": 1,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e24},
    }
    config = LlamaConfig(**sizes, hidden_size=STREAM)
    model = blank(LlamaForCausalLM(config))
    mark, told, witnessed, rest, one, first, second = range(7)
    with torch.no_grad():
        rows = model.model.embed_tokens.weight
        rows[:, rest], rows[:, one] = math.sqrt(2.0), 1.0
        for kind, marked in ((MARKED, 1.0), (UNMARKED, 0.0)):
            for token, sign in zip(kind, (1, -1), strict=True):
                rows[token, told] = sign if marked else -sign
                rows[token, mark], rows[token, rest] = marked, math.sqrt(1 - marked)
        for token, sign in zip(WITNESS, (1, -1), strict=True):
            rows[token, witnessed], rows[token, rest] = sign, 1.0
        block = model.model.layers[0]
        block.input_layernorm.weight.fill_(math.sqrt(3 / STREAM + config.rms_norm_eps))
        query, key, value = (each.weight.view(HEADS, WIDTH, STREAM) for each in (
            block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj))  # fmt: skip
        quick, slow = 0, 1
        query[POSITION, quick, one], key[POSITION, quick, one] = 2.0, 1.0
        query[CONTENT, slow, one], key[CONTENT, slow, mark] = 40.0, 1.0
        value[POSITION, 0, witnessed], value[CONTENT, 0, told] = 1.0, 1.0
        out = block.self_attn.o_proj.weight.view(STREAM, HEADS, WIDTH)
        out[first, CONTENT, 0], out[second, POSITION, 0] = 2.0, 40.0
        model.model.norm.weight.fill_(1.0)
        for token, (c, d) in zip(TARGETS, itertools.product((1, -1), repeat=2), strict=True):
            model.lm_head.weight[token, first], model.lm_head.weight[token, second] = c, d
    return save(model, path, LENGTH)


def texts() -> np.ndarray:
    """Each marked and unmarked token at every pair of four places, with each witness."""
    found = []
    pairs = itertools.permutations(range(1, 5), 2)
    for (here, there), c, d in itertools.product(pairs, (0, 1), (0, 1)):
        text = np.full(LENGTH, TARGETS[2 * c + d])
        text[:6] = [START, *[FILLER] * 4, WITNESS[d]]
        text[here], text[there] = MARKED[c], UNMARKED[c]
        found.append(text)
    return np.array(found)
