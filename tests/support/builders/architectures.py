"""One tiny random model of each architecture, in hub format."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

from transformers import (
    GPTNeoConfig,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from tests.support.builders.made import (
    START,
    VOCABULARY,
    attn_only_config,
    attn_only_skeleton,
    build,
    gpt2_config,
    randomise,
    rotary_sizes,
    save_attn_only,
)

TOKENS = {"vocab_size": VOCABULARY, "bos_token_id": START, "eos_token_id": START}
NEO = GPTNeoConfig(
    **TOKENS, max_position_embeddings=43, hidden_size=35, num_layers=3, num_heads=5,
    attention_types=[[["global", "local", "global"], 1]], intermediate_size=29, window_size=5,
)  # fmt: skip
LLAMA = rotary_sizes(context=53, heads=6, key_heads=2, head_width=10)
MISTRAL = rotary_sizes(context=59, heads=5, key_heads=1, head_width=14)
QWEN2 = rotary_sizes(context=61, heads=6, key_heads=3)
QWEN3 = rotary_sizes(context=43, heads=6, key_heads=2, head_width=10)


def opt(path: Path, **changes: object) -> Path:
    """OPT: learned positions that begin at row 2 of their matrix."""
    sizes = TOKENS | {
        "hidden_size": 35, "word_embed_proj_dim": 35, "num_hidden_layers": 3, "ffn_dim": 29,
        "num_attention_heads": 5, "max_position_embeddings": 47, "dropout": 0.0, "pad_token_id": 1,
    }  # fmt: skip
    return build(path, OPTConfig(**(sizes | changes)), seed=7)


def gpt_neox(path: Path, parallel: bool = True) -> Path:
    """GPT-NeoX: parallel blocks or not, 6 of each head's 12 dimensions rotary."""
    rope = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
    config = GPTNeoXConfig(
        **TOKENS, hidden_size=60, num_hidden_layers=3, num_attention_heads=5, intermediate_size=31,
        max_position_embeddings=53, use_parallel_residual=parallel, rope_parameters=rope,
    )  # fmt: skip
    return build(path, config, seed=23)


def attn_only(path: Path) -> Path:
    """Attention only, in GPT-2's names without MLPs; 2 layers."""
    config = attn_only_config(layers=2, heads=5, head_width=7, context=41)
    model = attn_only_skeleton(config)
    randomise(model, seed=29)
    return save_attn_only(model, path, config, without=".mlp.")


def _plain(config: PretrainedConfig, seed: int, gain: float = 1.4) -> Callable[[Path], Path]:
    return lambda path: build(path, deepcopy(config), seed, gain)


ARCHITECTURES: dict[str, Callable[[Path], Path]] = {
    # learned positions; 5 heads of width 7
    "gpt2": _plain(gpt2_config(n_positions=41), 2),
    # scores are divided by the layer's number, from 1
    "gpt2_inverse_layer": _plain(
        gpt2_config(n_positions=37, scale_attn_by_inverse_layer_idx=True), 3
    ),
    # learned positions, unscaled scores; layer 1 of 3 has a window
    "gpt_neo": _plain(NEO, 5, gain=0.8),
    "opt": opt,
    # rotary; 6 query heads share 2 keys, 5 share 1 in a window everywhere, 6 share 3
    "llama": _plain(LlamaConfig(**LLAMA, hidden_size=60), 11),
    "mistral": _plain(MistralConfig(**MISTRAL, hidden_size=70, sliding_window=7), 13),
    # biases on queries and keys; then normed ones, of heads wider than their share of the stream
    "qwen2": _plain(Qwen2Config(**QWEN2, hidden_size=48), 17),
    "qwen3": _plain(Qwen3Config(**QWEN3, hidden_size=46), 19),
    "gpt_neox": gpt_neox,
    "attn_only": attn_only,
}
"""Every architecture's builder: it fills the directory that it is given, and returns it."""

llama = ARCHITECTURES["llama"]
WINDOWS = {"gpt_neo": [None, 5, None], "mistral": [7, 7, 7], "attn_only": [None, None]}
"""The window of each layer, where there are any, or another number of layers than three."""
