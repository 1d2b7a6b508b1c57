"""One tiny random model of each architecture, in hub format."""

from collections.abc import Callable
from pathlib import Path

from transformers import (
    GPTNeoConfig,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
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


def gpt2(path: Path) -> Path:
    """GPT-2: learned positions; 3 layers, 5 heads of width 7, context 41."""
    return build(path, gpt2_config(n_positions=41), seed=2)


def gpt2_inverse_layer(path: Path) -> Path:
    """GPT-2 with scores divided by the layer's number, from 1; context 37."""
    config = gpt2_config(n_positions=37, scale_attn_by_inverse_layer_idx=True)
    return build(path, config, seed=3)


def gpt_neo(path: Path) -> Path:
    """GPT-Neo: learned positions, unscaled scores; layer 1 of 3 is local with a window of 5."""
    config = GPTNeoConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=43,
        hidden_size=35,
        num_layers=3,
        attention_types=[[["global", "local", "global"], 1]],
        num_heads=5,
        intermediate_size=29,
        window_size=5,
        bos_token_id=START,
        eos_token_id=START,
    )
    return build(path, config, seed=5, gain=0.8)


def opt(path: Path, seed: int = 7, **changes: object) -> Path:
    """OPT: learned positions that begin at row 2 of their matrix; context 47."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 35,
        "word_embed_proj_dim": 35,
        "num_hidden_layers": 3,
        "num_attention_heads": 5,
        "ffn_dim": 29,
        "max_position_embeddings": 47,
        "dropout": 0.0,
        "bos_token_id": START,
        "eos_token_id": START,
        "pad_token_id": 1,
    }
    return build(path, OPTConfig(**(sizes | changes)), seed)


def llama(path: Path) -> Path:
    """Llama: rotary; 6 query heads share 2 keys, heads of width 10; context 53."""
    config = LlamaConfig(
        **rotary_sizes(context=53, heads=6, key_heads=2, head_width=10), hidden_size=60
    )
    return build(path, config, seed=11)


def mistral(path: Path) -> Path:
    """Mistral: rotary, 5 query heads share 1 key, a sliding window of 7 everywhere; context 59."""
    sizes = rotary_sizes(context=59, heads=5, key_heads=1, head_width=14)
    return build(path, MistralConfig(**sizes, hidden_size=70, sliding_window=7), seed=13)


def qwen2(path: Path) -> Path:
    """Qwen2: rotary, with biases on queries and keys; 6 query heads share 3 keys; context 61."""
    sizes = rotary_sizes(context=61, heads=6, key_heads=3)
    return build(path, Qwen2Config(**sizes, hidden_size=48), seed=17)


def qwen3(path: Path) -> Path:
    """Qwen3: rotary, queries and keys normed; heads of width 10 in a stream of width 46."""
    sizes = rotary_sizes(context=43, heads=6, key_heads=2, head_width=10)
    return build(path, Qwen3Config(**sizes, hidden_size=46), seed=19)


def gpt_neox(path: Path, seed: int = 23, parallel: bool = True) -> Path:
    """GPT-NeoX: parallel blocks or not, 6 of each head's 12 dimensions rotary; context 53."""
    config = GPTNeoXConfig(
        vocab_size=VOCABULARY,
        hidden_size=60,
        num_hidden_layers=3,
        num_attention_heads=5,
        intermediate_size=31,
        max_position_embeddings=53,
        use_parallel_residual=parallel,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
        bos_token_id=START,
        eos_token_id=START,
    )
    return build(path, config, seed)


def attn_only(path: Path) -> Path:
    """Attention only, in GPT-2's names without MLPs; 2 layers, 5 heads of width 7, context 41."""
    config = attn_only_config(layers=2, heads=5, head_width=7, context=41)
    model = attn_only_skeleton(config)
    randomise(model, seed=29)
    return save_attn_only(model, path, config, without=".mlp.")


ARCHITECTURES: dict[str, Callable[[Path], Path]] = {
    "gpt2": gpt2,
    "gpt2_inverse_layer": gpt2_inverse_layer,
    "gpt_neo": gpt_neo,
    "opt": opt,
    "llama": llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "gpt_neox": gpt_neox,
    "attn_only": attn_only,
}
"""Every architecture's builder: it fills the directory that it is given, and returns it."""

SHAPES: dict[str, tuple[int, int, int, list[int | None]]] = {
    "gpt2": (3, 5, 41, [None, None, None]),
    "gpt2_inverse_layer": (3, 5, 37, [None, None, None]),
    "gpt_neo": (3, 5, 43, [None, 5, None]),
    "opt": (3, 5, 47, [None, None, None]),
    "llama": (3, 6, 53, [None, None, None]),
    "mistral": (3, 5, 59, [7, 7, 7]),
    "qwen2": (3, 6, 61, [None, None, None]),
    "qwen3": (3, 6, 43, [None, None, None]),
    "gpt_neox": (3, 5, 53, [None, None, None]),
    "attn_only": (2, 5, 41, [None, None]),
}
"""Layers, heads, context, and the window of each layer."""
