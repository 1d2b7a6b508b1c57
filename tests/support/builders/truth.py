"""Ground truth of plain transformers, random tokens, and small corpora."""

import json
import random
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from tests.support.builders.made import VOCABULARY, attn_only_skeleton


def hf_eager_model(path: Path) -> PreTrainedModel:
    """The plain transformers model of a directory, with eager attention, in evaluation mode.

    For an attention-only directory: a GPT-2 whose MLPs return zero.
    """
    config = json.loads((path / "config.json").read_text())
    if not config.get("attn_only"):
        kind = AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM
        return kind.from_pretrained(path, attn_implementation="eager").eval()
    model = attn_only_skeleton(config)
    result = model.load_state_dict(load_file(path / "model.safetensors"), strict=False)
    missing = [name for name in result.missing_keys if ".ln_2." not in name]
    if missing != ["lm_head.weight"] or result.unexpected_keys:
        raise ValueError(f"the file does not fit its config.json: {result}")
    return model.eval()


def hf_eager_attentions(path: Path, ids: Tensor) -> list[Tensor]:
    """Attention probabilities of each layer, [batch, head, query, key]; `ids` is [batch, T]."""
    with torch.inference_mode():
        return list(hf_eager_model(path)(ids, output_attentions=True, use_cache=False).attentions)


def random_ids(batch: int, length: int, seed: int = 0) -> Tensor:
    """Random token ids without the start token, [batch, length]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, VOCABULARY, (batch, length), generator=generator)


def random_words(count: int, seed: int = 0) -> str:
    """Made-up words, the early ones of a fixed list far more frequent, as in real text."""
    generator = random.Random(seed)
    syllables = [c + v for c in "bdfgklmnprst" for v in "aeiou"]
    lexicon_of_all = random.Random(37)
    lexicon = ["".join(lexicon_of_all.choices(syllables, k=1 + j % 3)) for j in range(200)]
    weights = [1 / (rank + 1) for rank in range(len(lexicon))]
    return " ".join(generator.choices(lexicon, weights, k=count))


def mini_corpus(
    path: Path, documents: int = 7, words: int = 101, seed: int = 0
) -> tuple[Path, Path]:
    """Write documents of `random_words` as `mini.txt`, blank lines between, and `mini.jsonl`."""
    path.mkdir(parents=True, exist_ok=True)
    texts = [random_words(words, seed * documents + j) for j in range(documents)]
    plain, lines = path / "mini.txt", path / "mini.jsonl"
    plain.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    lines.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), encoding="utf-8")
    return plain, lines
