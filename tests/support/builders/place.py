"""A rotary model of one layer whose scores are known functions of place and content."""

import math
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.support.builders.made import VOCABULARY, rotary_sizes, save
from tests.support.builders.positions import blank

CODES = [
    math.cos(2 * math.pi * ((37 * token) % VOCABULARY) / VOCABULARY) for token in range(VOCABULARY)
]
"""What a token says, from -1 to 1."""
HEADS, WIDTH, STREAM, SCALE = 5, 4, 15, 2.0
PLACE, CONTENT, SUM, PRODUCT, NOTHING = range(HEADS)


def place_and_content(path: Path, T: int = 31) -> Path:
    """A Llama without training; the score of the query at `n` and key `j` at place `i` is

    - head `PLACE`: `cos(n - i)`, for the keys are all alike;
    - head `CONTENT`: `CODES[token_j]`, by a pair of dimensions that hardly turns;
    - head `SUM`: `cos(n - i) + CODES[token_j]`;
    - head `PRODUCT`: `cos(n - i) CODES[token_j]`;
    - head `NOTHING`: always 1.

    A token stands in two dimensions as a unit vector, beside a constant of 1; queries read that.
    """
    sizes = rotary_sizes(T, HEADS, HEADS, WIDTH) | {
        "num_hidden_layers": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e24},
    }
    config = LlamaConfig(**sizes, hidden_size=STREAM)
    model = blank(LlamaForCausalLM(config))
    with torch.no_grad():
        model.model.norm.weight.fill_(1.0)
        rows = model.model.embed_tokens.weight
        codes = torch.tensor(CODES, dtype=torch.float64)
        rows[:, 0], rows[:, 1], rows[:, 2] = codes, (1 - codes**2).clamp(min=0).sqrt(), 1.0
        block = model.model.layers[0]
        block.input_layernorm.weight.fill_(math.sqrt(2 / STREAM + config.rms_norm_eps))
        query, key = (each.weight.view(HEADS, WIDTH, STREAM) for each in (
            block.self_attn.q_proj, block.self_attn.k_proj))  # fmt: skip
        code, one, quick, slow = 0, 2, 0, 1  # dimensions of the stream; pairs of a head
        reads = {
            PLACE: [(quick, one)],
            CONTENT: [(slow, code)],
            SUM: [(quick, one), (slow, code)],
            PRODUCT: [(quick, code)],
            NOTHING: [(slow, one)],
        }
        for head, pairs in reads.items():
            for pair, of in pairs:
                query[head, pair, one], key[head, pair, of] = SCALE, 1.0
    return save(model, path, T)
