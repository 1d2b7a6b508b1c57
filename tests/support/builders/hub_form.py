"""Small models of every causal class of transformers, with config.json in the form the hub has it.

Fields that equal the class's default are left out, the base of a rotation is a whole number in a
field of its own, and the attention and the code that somebody else would use are named.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from poskernel_core.forward.configuration import kind_of, skeleton
from tests.support.builders.made import randomise

VOCABULARY, MOST = 293, 20_000_000
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "intermediate_size": 48, "max_position_embeddings": 128, "sliding_window": 8,
    "ffn_dim": 48, "n_inner": 48, "d_model": 64, "word_embed_proj_dim": 64, "rotary_dim": 8,
    "encoder_layers": 2, "decoder_layers": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "num_experts": 4,
    "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "n_group": 1, "topk_group": 1,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1,
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8,
    "num_kv_shared_layers": 0, "attention_chunk_size": 8, "global_head_dim": 24,
}  # fmt: skip
"""Sizes by the names that most classes have; those that a class lacks are left out."""

FULL, SLIDE, LINEAR = "full_attention", "sliding_attention", "linear_attention"
TURN = {"rope_type": "default", "rope_theta": 500.0}
ALL_KEYS = {"num_key_value_heads": 4}
MORE: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("axk1", "deepseek_v2", "deepseek_v3", "dots3_note_text", "glm4_moe_lite", "minicpm3",
         "youtu"), ALL_KEYS
    ),
    "bailing_hybrid": {"layer_group_size": 2, **ALL_KEYS},
    "bamba": {"attn_layer_indices": [1, 3]},
    "cohere_compass_text": {"rope_parameters": {FULL: TURN, SLIDE: TURN}},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 500.0, "clip_qkv": 8.0},
             "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2}},
    "falcon_h1": {"mamba_d_ssm": 128},
    "gemma4_text": {"num_kv_shared_layers": 2, "layer_types": [SLIDE, FULL] * 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "window_size": 8},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 3},
    "kimi_linear": {"layer_types": [LINEAR, FULL] * 2, "linear_num_heads": 4, "linear_head_dim": 8,
                    **ALL_KEYS},
    "lfm2_moe": {"layer_types": ["conv", FULL] * 2},
    "longcat_flash": {"num_layers": 2, **ALL_KEYS},
    "mamba2": {"num_heads": 8},
    "reformer": {"is_decoder": True},
    "zamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "zamba2": {"layers_block_type": [LINEAR, "hybrid"] * 2},
    "zaya": {"num_experts_per_tok": 1},
}  # fmt: skip
"""What a class needs besides, to be small and to have attention."""


def small(kind: str, **more: Any) -> PretrainedConfig:
    """The configuration of a small model of a class."""
    made = CONFIG_MAPPING[kind]
    fields = {field.name for field in dataclasses.fields(made)}
    named = {made.attribute_map.get(name, name): value for name, value in SMALL.items()}
    given = {name: value for name, value in named.items() if name in fields}
    inner = getattr(made.sub_configs.get("text_config"), "model_type", None)
    if inner in CONFIG_MAPPING:
        given["text_config"] = small(inner)
    return made(**given | MORE.get(kind, {}) | more)


def hub_form(config: PretrainedConfig) -> dict[str, Any]:
    """What a hub's config.json says of a model."""
    told = json.loads(json.dumps(config.to_diff_dict(), default=str))
    for part in (told, told.get("text_config", {})):
        turn = part.get("rope_parameters")
        if turn and turn.keys() == {*TURN} and turn["rope_type"] == TURN["rope_type"]:
            part["rope_theta"] = int(part.pop("rope_parameters")["rope_theta"])
    return told | {
        "model_type": config.model_type,
        "_attn_implementation": "flash_attention_2",
        "auto_map": {"AutoConfig": "configuration_of_others.OthersConfig"},
        "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0",
    }


def build(path: Path, kind: str) -> Path:
    """Fill a directory with a small random model, and return it."""
    config = small(kind)
    return write(path, config, hub_form(config))


def write(path: Path, config: PretrainedConfig, told: dict[str, Any]) -> Path:
    """Fill a directory with random weights of a configuration, and with what is told of it."""
    numbers = sum(part.numel() for part in skeleton("a model", config).parameters())
    if numbers > MOST:
        raise ValueError("it is not small")
    model = kind_of(str(path), config).from_config(config)
    randomise(model, seed=sum(map(ord, config.model_type)))
    model.save_pretrained(path)
    (path / "config.json").write_text(json.dumps(told), encoding="utf-8")
    return path


def plain_logits(path: Path, ids: torch.Tensor) -> torch.Tensor:
    """The logits of plain transformers with eager attention, for the configuration that is told."""
    told = json.loads((path / "config.json").read_text(encoding="utf-8"))
    theirs = {name: each for name, each in told.items() if name != "_attn_implementation"}
    config = CONFIG_MAPPING[told["model_type"]].from_dict(theirs)
    plain = kind_of(str(path), config).from_pretrained(
        path, config=config, attn_implementation="eager", dtype=torch.float32
    )
    with torch.inference_mode():
        return plain.eval()(ids, use_cache=False).logits
