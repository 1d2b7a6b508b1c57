"""One tiny random model of each family that is held against transformers, its features switched on.

Sizes are unequal; windows, chunks and contexts are such that every mask hides something. Experts
have sizes of multiples of four: their products want aligned rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.support.builders.architectures import ARCHITECTURES, WINDOWS
from tests.support.builders.made import START, VOCABULARY, randomise, save_tokenizer

KINDS = {"gpt2_inverse_layer": "gpt2", "attn_only": "attn-only"}
FULL, SLIDE, CHUNK = "full_attention", "sliding_attention", "chunked_attention"


@dataclass(frozen=True)
class FamilyModel:
    """A tiny model: what it is made of, and what must be found in it.

    `windows` and `chunks` are those of the layers, `bare` the layers without heads.
    Where it lies within a model that reads images too, `within` is that one's `model_type`,
    `beside` what else it names. `made` is a builder of its own.
    """

    kind: str
    config: dict[str, Any]
    windows: Sequence[int | None] = (None, None, None)
    chunks: list[int | None] = field(default_factory=list)
    bare: tuple[int, ...] = ()
    gain: float = 1.4
    made: Callable[[Path], Path] | None = None
    within: str = ""
    beside: dict[str, Any] = field(default_factory=dict)

    @property
    def layers(self) -> int:
        return len(self.windows)

    def build(self, path: Path) -> Path:
        """Fill a directory with the model and a tokenizer, and return it."""
        if self.made:
            return self.made(path)
        text = {"vocab_size": VOCABULARY, "bos_token_id": START, "eos_token_id": START,
                "pad_token_id": START, **self.config}  # fmt: skip
        if self.within:
            config = CONFIG_MAPPING[self.within](
                text_config=text | {"model_type": self.kind}, **self.beside
            )
            model = AutoModelForImageTextToText.from_config(config)
        else:
            model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[self.kind](**text))
        randomise(model, seed=len(self.kind) + sum(map(ord, self.kind)), gain=self.gain)
        path.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(path)
        save_tokenizer(path, 41)
        return path


def rotary(
    heads: int = 6, key_heads: int = 2, width: int = 60, layers: int = 3, **more: Any
) -> dict[str, Any]:
    """What most configurations name alike."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "intermediate_size": 36,
        "max_position_embeddings": 61,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        "tie_word_embeddings": False,
        **more,
    }


def experts(**more: Any) -> dict[str, Any]:
    """A few experts of which two are used."""
    return {"num_experts_per_tok": 2, "moe_intermediate_size": 20, **more}


TWO_BASES = {
    SLIDE: {"rope_type": "default", "rope_theta": 100.0},
    FULL: {"rope_type": "default", "rope_theta": 3000.0},
}
IN_TURN = {"sliding_window": 7, "layer_types": [SLIDE, FULL, SLIDE]}
TURNS = [7, None, 7]
PARTIAL = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
GDN = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 12, "linear_conv_kernel_dim": 3,
}  # fmt: skip
COMPRESSED = {
    "q_lora_rank": 20, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 6,
    "v_head_dim": 10, "num_key_value_heads": 6, "n_routed_experts": 4, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1,
}  # fmt: skip

SEES = {
    "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 1, "num_attention_heads": 2,
    "image_size": 8, "patch_size": 4,
}  # fmt: skip
"""What reads images, in a model whose text alone is run."""
LOOKS = {
    "depth": 1, "hidden_size": 12, "intermediate_size": 14, "out_hidden_size": 60, "num_heads": 2,
    "patch_size": 4,
}  # fmt: skip
THREEFOLD = {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [1, 2, 2]}

FAMILY_MODELS: dict[str, FamilyModel] = {
    "gemma": FamilyModel("gemma", rotary(head_dim=14)),
    "gemma2": FamilyModel(
        "gemma2", rotary(head_dim=14, **IN_TURN, attn_logit_softcapping=1.7,
        final_logit_softcapping=5.0, query_pre_attn_scalar=23), TURNS
    ),
    "gemma3": FamilyModel(
        "gemma3_text", rotary(head_dim=14, **IN_TURN, rope_parameters=TWO_BASES,
        query_pre_attn_scalar=11), TURNS
    ),
    "gemma4": FamilyModel(
        "gemma4_text", rotary(head_dim=10, sliding_window=7, layer_types=[SLIDE, SLIDE, FULL],
        rope_parameters=TWO_BASES, global_head_dim=14, num_global_key_value_heads=3,
        hidden_size_per_layer_input=0, num_kv_shared_layers=0, attention_k_eq_v=True,
        enable_moe_block=False), [7, 7, None]
    ),
    "olmo": FamilyModel("olmo", rotary(clip_qkv=1.5)),
    "olmo2": FamilyModel("olmo2", rotary()),
    "olmo3": FamilyModel("olmo3", rotary(**IN_TURN), TURNS),
    "olmoe": FamilyModel("olmoe", rotary(**experts(num_experts=4))),
    "smollm3": FamilyModel("smollm3", rotary(no_rope_layers=[1, 0, 1])),
    "phi": FamilyModel("phi", rotary(heads=5, key_heads=5, rope_parameters=PARTIAL)),
    "phi3": FamilyModel(
        "phi3", rotary(sliding_window=7, original_max_position_embeddings=61), [7] * 3
    ),
    "qwen2-windows": FamilyModel(
        "qwen2", rotary(key_heads=3, width=48, sliding_window=7, use_sliding_window=True,
        max_window_layers=1), [None, 7, 7]
    ),
    "qwen3-moe": FamilyModel(
        "qwen3_moe", rotary(head_dim=14, **experts(num_experts=4, decoder_sparse_step=1))
    ),
    "mixtral": FamilyModel(
        "mixtral", rotary(sliding_window=7, num_local_experts=4, num_experts_per_tok=2), [7] * 3
    ),
    "gpt-oss": FamilyModel(
        "gpt_oss", rotary(head_dim=14, **IN_TURN, num_local_experts=4, num_experts_per_tok=2), TURNS
    ),
    "granite": FamilyModel(
        "granite", rotary(attention_multiplier=0.17, residual_multiplier=0.7,
        embedding_multiplier=3.0, logits_scaling=1.9)
    ),
    "stablelm": FamilyModel(
        "stablelm", rotary(heads=5, key_heads=1, rope_parameters=PARTIAL, use_qkv_bias=True,
        qk_layernorm=True)
    ),
    "cohere": FamilyModel("cohere", rotary(use_qk_norm=True, logit_scale=0.3)),
    "cohere2": FamilyModel("cohere2", rotary(**IN_TURN, head_dim=10), TURNS),
    "starcoder2": FamilyModel("starcoder2", rotary(sliding_window=7), [7] * 3),
    "gpt-neox-partial": FamilyModel(
        "gpt_neox",
        rotary(heads=5, key_heads=5, rope_parameters=PARTIAL, use_parallel_residual=False),
    ),
    "llama4": FamilyModel(
        "llama4_text", rotary(head_dim=10, attention_chunk_size=7, no_rope_layers=[1, 0, 1],
        layer_types=[CHUNK, FULL, CHUNK], intermediate_size_mlp=36, num_local_experts=4,
        num_experts_per_tok=1, moe_layers=[1], attn_temperature_tuning=True, floor_scale=5),
        chunks=[7, None, 7]
    ),
    "deepseek2": FamilyModel("deepseek_v2", rotary(**experts(**COMPRESSED, topk_method="greedy"))),
    "deepseek3": FamilyModel("deepseek_v3", rotary(**experts(**COMPRESSED))),
    "gptj": FamilyModel(
        "gptj", {"n_embd": 60, "n_layer": 3, "n_head": 5, "n_positions": 61, "rotary_dim": 6,
        "n_inner": 36, "tie_word_embeddings": False}
    ),
    "bloom": FamilyModel(
        "bloom", {"hidden_size": 60, "n_layer": 3, "n_head": 5, "hidden_dropout": 0.0,
        "attention_dropout": 0.0}
    ),
    "mpt": FamilyModel(
        "mpt", {"d_model": 60, "n_layers": 3, "n_heads": 5, "max_seq_len": 61, "expansion_ratio": 2,
        "attn_config": {"clip_qkv": 1.5, "alibi_bias_max": 5}}
    ),
    "falcon-rotary": FamilyModel(
        "falcon", {"hidden_size": 60, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_kv_heads": 2, "new_decoder_architecture": True, "alibi": False,
        "max_position_embeddings": 61}
    ),
    "falcon-one-key": FamilyModel(
        "falcon", {"hidden_size": 60, "num_hidden_layers": 3, "num_attention_heads": 6,
        "new_decoder_architecture": False, "multi_query": True, "alibi": False,
        "max_position_embeddings": 61}
    ),
    "falcon-alibi": FamilyModel(
        "falcon", {"hidden_size": 60, "num_hidden_layers": 3, "num_attention_heads": 5,
        "new_decoder_architecture": False, "multi_query": False, "alibi": True, "parallel_attn":
        False, "bias": True, "max_position_embeddings": 331}
    ),
    "gpt-bigcode": FamilyModel(
        "gpt_bigcode", {"n_embd": 60, "n_layer": 3, "n_head": 5, "n_positions": 61, "n_inner": 36,
        "multi_query": True}
    ),
    "glm4": FamilyModel("glm4", rotary(head_dim=12, attention_bias=True, rope_parameters=PARTIAL)),
    "nemotron": FamilyModel("nemotron", rotary(head_dim=12, rope_parameters=PARTIAL)),
    "exaone4": FamilyModel("exaone4", rotary(**IN_TURN), TURNS),
    "llama-yarn": FamilyModel(
        "llama", rotary(rope_parameters={"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0,
        "original_max_position_embeddings": 16})
    ),
    "qwen3-next": FamilyModel(
        "qwen3_next", rotary(head_dim=12, layer_types=["linear_attention", FULL,
        "linear_attention"], shared_expert_intermediate_size=20, rope_parameters=PARTIAL,
        **experts(num_experts=4), **GDN), bare=(0, 2)
    ),
    "olmo-hybrid": FamilyModel(
        "olmo_hybrid", rotary(layer_types=["linear_attention", FULL, "linear_attention"], **{k: v
        for k, v in GDN.items() if "conv" not in k} | {"linear_num_key_heads": 4}), bare=(0, 2)
    ),
    "jamba": FamilyModel(
        "jamba", rotary(attn_layer_period=2, attn_layer_offset=1, mamba_d_state=4, mamba_dt_rank=3,
        num_experts=4, num_experts_per_tok=2, expert_layer_period=2, expert_layer_offset=1,
        use_mamba_kernels=False), bare=(0, 2)
    ),
    "lfm2": FamilyModel(
        "lfm2", rotary(layer_types=["conv", FULL, "conv"], conv_L_cache=3, block_ff_dim=36,
        block_auto_adjust_ff_dim=False), bare=(0, 2)
    ),
    "gemma3-within": FamilyModel(
        "gemma3_text", rotary(head_dim=14, **IN_TURN, rope_parameters=TWO_BASES), TURNS,
        within="gemma3", beside={"vision_config": {"model_type": "siglip_vision_model", **SEES},
        "mm_tokens_per_image": 4}
    ),
    "llama-within": FamilyModel(
        "llama", rotary(), within="llava", beside={"vision_config": {"model_type":
        "clip_vision_model", "projection_dim": 12, **SEES}, "image_token_index": 7,
        "vision_feature_layer": -1}
    ),
    "mistral-within": FamilyModel(
        "mistral", rotary(sliding_window=7), [7] * 3, within="mistral3", beside={"vision_config":
        {"model_type": "pixtral", "head_dim": 6, **SEES}, "image_token_index": 7}
    ),
    "qwen2-vl": FamilyModel(
        "qwen2_vl_text", rotary(rope_parameters=THREEFOLD), within="qwen2_vl",
        beside={"vision_config": {"depth": 1, "embed_dim": 12, "hidden_size": 60, "num_heads": 2,
        "patch_size": 4}}
    ),
    "qwen25-vl": FamilyModel(
        "qwen2_5_vl_text", rotary(rope_parameters=THREEFOLD), within="qwen2_5_vl",
        beside={"vision_config": LOOKS}
    ),
    "qwen3-vl": FamilyModel(
        "qwen3_vl_text", rotary(head_dim=10, rope_parameters=THREEFOLD), within="qwen3_vl",
        beside={"vision_config": LOOKS | {"deepstack_visual_indexes": [0],
        "num_position_embeddings": 16}}
    ),
}  # fmt: skip
"""Tiny models by name; several of one family where it comes in several kinds."""

EVERY_MODEL = FAMILY_MODELS | {
    name: FamilyModel(KINDS.get(name, name), {}, WINDOWS.get(name, [None] * 3), made=build)
    for name, build in ARCHITECTURES.items()
}
"""These, and those of `architectures`."""

REPRESENTATIVES = (
    "gpt2", "gpt_neo", "mistral", "gemma2", "gemma4", "gpt-oss", "llama4", "deepseek2",
    "falcon-alibi", "lfm2",
)  # fmt: skip
"""Each kind of attention once: learned positions, an attention of its own, windows and one key
head, soft caps, head widths by layer, sinks, chunks, values of another width, ALiBi, no heads."""


def tried() -> tuple[str, ...]:
    """The models that tests of every family try: all where `POSKERNEL_EVERY_FAMILY` is set."""
    return tuple(EVERY_MODEL) if os.environ.get("POSKERNEL_EVERY_FAMILY") else REPRESENTATIVES
