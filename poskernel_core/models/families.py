"""The supported architectures with their position schemes, and the refused ones with reasons."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Family:
    """Properties common to all models of one architecture.

    Attributes:
        scheme: how the model encodes position: ``learned``, ``rotary``, ``ALiBi``, or
            ``no`` (the causal mask only).
        defaults: transformers' defaults for fields missing in a configuration.
        sliding: used only if a configuration does not list its sliding-attention layers. It says
            which layers those are: ``all``, all but every k-th layer (an integer ``k``), or none
            (None).
        fixed: whether the head widths add up to the width of the residual stream.
        compressed: whether keys are stored compressed and expanded to one per head.
        lends_keys: whether layers may use another layer's keys and values.
        state_space: whether "linear attention" in a configuration means a state-space layer.
    """

    scheme: str
    defaults: dict[str, Any] = field(default_factory=dict)
    sliding: str | int | None = None
    fixed: bool = False
    compressed: bool = False
    lends_keys: bool = False
    state_space: bool = False


LEARNED = Family("learned", fixed=True)
ROTARY = Family("rotary")
SLIDING = Family("rotary", sliding="all")
COMPRESSED = Family("rotary", {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64}, compressed=True)


def _wide(head_dim: int, sliding: str | int | None = None, **defaults: Any) -> Family:
    return Family("rotary", {"head_dim": head_dim, **defaults}, sliding)


FAMILIES: dict[str, Family] = {
    "gpt2": LEARNED,
    "gpt_neo": LEARNED,
    "opt": LEARNED,
    "attn-only": LEARNED,
    "gpt_bigcode": LEARNED,
    "biogpt": LEARNED,
    "llama": ROTARY,
    "mistral": SLIDING,
    "mixtral": SLIDING,
    "ministral": Family("rotary", {"sliding_window": 4096}, "all"),
    "ministral3": SLIDING,
    "qwen2": ROTARY,
    "qwen2_moe": ROTARY,
    "qwen2_vl_text": ROTARY,
    "qwen2_5_vl_text": ROTARY,
    "qwen3_vl_text": _wide(128),
    "qwen3": _wide(128),
    "qwen3_moe": ROTARY,
    "gpt_neox": Family("rotary", fixed=True),
    "gemma": _wide(256),
    "gemma2": _wide(256, 2, sliding_window=4096),
    "gemma3_text": _wide(256, 6, sliding_window=4096),
    "gemma4_text": Family("rotary", {"head_dim": 256, "sliding_window": 512}, 6, lends_keys=True),
    "vaultgemma": _wide(256, 2, sliding_window=4096),
    "olmo": ROTARY,
    "olmo2": ROTARY,
    "olmo3": Family("rotary", {"sliding_window": 4096}, 4),
    "olmoe": ROTARY,
    "flex_olmo": ROTARY,
    "smollm3": ROTARY,
    "phi": Family("rotary", fixed=True),
    "phi3": SLIDING,
    "phimoe": SLIDING,
    "gpt_oss": _wide(64, 2, sliding_window=128),
    "granite": ROTARY,
    "granitemoe": ROTARY,
    "granitemoeshared": ROTARY,
    "stablelm": ROTARY,
    "cohere": ROTARY,
    "cohere2": Family("rotary", {"sliding_window": 4096}, 4),
    "starcoder2": SLIDING,
    "arcee": ROTARY,
    "apertus": ROTARY,
    "seed_oss": _wide(128),
    "helium": _wide(128),
    "glm": _wide(128),
    "glm4": _wide(128),
    "glm4_moe": ROTARY,
    "ernie4_5": ROTARY,
    "ernie4_5_moe": ROTARY,
    "exaone4": ROTARY,
    "dots1": ROTARY,
    "nemotron": ROTARY,
    "persimmon": Family("rotary", fixed=True),
    "hunyuan_v1_dense": ROTARY,
    "hunyuan_v1_moe": ROTARY,
    "llama4_text": _wide(128, attention_chunk_size=8192),
    "deepseek_v2": COMPRESSED,
    "deepseek_v3": COMPRESSED,
    "minicpm3": Family("rotary", {"qk_nope_head_dim": 64, "qk_rope_head_dim": 32}, compressed=True),
    "dbrx": ROTARY,
    "gptj": Family("rotary", fixed=True),
    "falcon": Family("rotary", fixed=True),
    "bloom": Family("ALiBi", {"max_position_embeddings": 2048}, fixed=True),
    "mpt": Family("ALiBi", {"max_seq_len": 2048}, fixed=True),
    "qwen3_next": _wide(256),
    "qwen3_5_text": _wide(256),
    "olmo_hybrid": ROTARY,
    "jamba": Family("no", state_space=True),
    "bamba": Family("rotary", state_space=True),
    "granitemoehybrid": Family("no", state_space=True),
    "falcon_h1": ROTARY,
    "lfm2": ROTARY,
    "lfm2_moe": ROTARY,
    "nemotron_h": Family("no", {"head_dim": 128}, state_space=True),
    "minimax": ROTARY,
}
"""Every supported architecture, by ``model_type``."""

REFUSED = {
    "t5": "relative position buckets and an encoder",
    "bert": "bidirectional attention",
    "roberta": "bidirectional attention",
    "mamba": "no attention",
    "mamba2": "no attention",
    "falcon_mamba": "no attention",
    "rwkv": "no attention",
    "paligemma": "attention that looks ahead in the prompt",
    "codegen": "an attention that cannot be replaced",
    "xlnet": "two streams of attention",
    "diffllama": "the difference of two attentions",
    "zamba": "one attention that several layers share",
    "zamba2": "one attention that several layers share",
    "deepseek_v32": "keys chosen by an index",
    "deepseek_v4": "keys of several tokens in one",
    "glm_moe_dsa": "keys chosen by an index",
}
