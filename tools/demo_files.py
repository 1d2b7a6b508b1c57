"""Read and write the directories of the demo models, in the format of the Hugging Face hub."""

import json
import os
from dataclasses import replace
from pathlib import Path

import torch
from demo_recipes import RECIPES, START_TOKEN, Recipe, build_model
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

WEIGHTS = "model.safetensors"


def save_tokenizer(tokenizer: Tokenizer, context: int, out: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=START_TOKEN,
        eos_token=START_TOKEN,
        model_max_length=context,
    )
    wrapped.save_pretrained(out)


def save_model(
    model: PreTrainedModel,
    recipe: Recipe,
    out: Path,
    steps: int,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write configuration and weights; a kill in between leaves whole files."""
    tensors = {
        name: tensor.detach().to("cpu", dtype).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # tied to the token embedding
    }
    part = out / f"{WEIGHTS}.part"
    save_file(tensors, part, metadata={"format": "pt", "steps": str(steps)})
    part.chmod(0o644)
    os.replace(part, out / WEIGHTS)
    if recipe.mlp:
        model.config.architectures = [type(model).__name__]
        model.config.dtype = "float32"
        model.config.save_pretrained(out)
    else:
        text = json.dumps(_attn_only_config(recipe), indent=1) + "\n"
        (out / "config.json").write_text(text, encoding="utf-8")


def load_model(folder: Path) -> PreTrainedModel:
    """A demo model from its directory, in evaluation mode."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] == "attn-only":
        model = build_model(_recipe_of(config))
        tensors = {name: tensor.float() for name, tensor in load_file(folder / WEIGHTS).items()}
        model.load_state_dict(tensors | {"lm_head.weight": tensors["transformer.wte.weight"]})
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


def trained_steps(folder: Path) -> int:
    """How many steps the saved weights were trained for."""
    with safe_open(folder / WEIGHTS, framework="pt") as weights:
        return int(weights.metadata()["steps"])


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """A demo model's tokenizer from its directory."""
    return PreTrainedTokenizerFast.from_pretrained(folder)


def _attn_only_config(recipe: Recipe) -> dict[str, object]:
    return {
        "model_type": "attn-only",
        "n_layers": recipe.layers,
        "n_heads": recipe.heads,
        "d_model": recipe.width,
        "d_head": recipe.width // recipe.heads,
        "n_ctx": recipe.context,
        "d_vocab": recipe.vocabulary,
        "attn_only": True,
        "normalization_type": "LN",
        "positional_embedding_type": "standard",
        "tied_embeddings": True,
        "note": "state dict in GPT-2 names (transformer.wte, wpe, h.{l}.ln_1, "
        "h.{l}.attn.c_attn, c_proj, ln_f); ln_2 unused",
    }


def _recipe_of(config: dict[str, int]) -> Recipe:
    return replace(
        RECIPES["demo-attn-2l"],
        layers=config["n_layers"],
        heads=config["n_heads"],
        width=config["d_model"],
        context=config["n_ctx"],
        vocabulary=config["d_vocab"],
    )
