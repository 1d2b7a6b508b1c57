"""A model whose heads copy, suppress, or do nothing with the tokens that they look at."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.support.builders.made import rotary_sizes, save
from tests.support.builders.positions import blank

COPIES, SUPPRESSES, NOTHING = range(3)
WIDTH, LENGTH = 54, 31


def copying_heads(path: Path) -> Path:
    """A Llama of two layers without training; every head reads and writes the whole stream.

    Values of the head `COPIES` are the stream, which it adds again; `SUPPRESSES` takes it away.
    """
    sizes = rotary_sizes(LENGTH, 3, 3, WIDTH) | {"num_hidden_layers": 2, "hidden_size": WIDTH}
    model = blank(LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=False)))
    body, one = model.model, torch.eye(WIDTH)
    with torch.no_grad():
        rows = torch.randn(model.config.vocab_size, WIDTH, generator=torch.manual_seed(3))
        rows /= rows.norm(dim=1, keepdim=True)
        body.embed_tokens.weight.copy_(rows)
        model.lm_head.weight.copy_(rows)
        body.norm.weight.fill_(1.0)
        for block in body.layers:
            block.input_layernorm.weight.fill_(1.0)
            block.self_attn.v_proj.weight.copy_(one.repeat(3, 1))
            block.self_attn.o_proj.weight.copy_(torch.cat([one, -one, 0 * one], dim=1) / 10)
    return save(model, path, LENGTH)
