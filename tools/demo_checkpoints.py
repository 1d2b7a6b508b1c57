"""Checkpoints of a demo model's training: one directory each in hub format, and their schedule.

The weights are kept in bfloat16, at the steps that the recipe names.
"""

import json
from pathlib import Path

import torch
from demo_files import save_model
from demo_recipes import Recipe
from transformers import PreTrainedModel

SCHEDULE = "schedule.json"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def keep_checkpoint(model: PreTrainedModel, recipe: Recipe, out: Path, step: int) -> None:
    """Write one checkpoint below `out`, and name it in the schedule."""
    folder = out / f"step-{step}"
    folder.mkdir(exist_ok=True)
    for name in TOKENIZER:
        text = json.loads((out / name).read_text(encoding="utf-8"))
        compact = json.dumps(text, ensure_ascii=False, separators=(",", ":"))
        (folder / name).write_text(compact + "\n", encoding="utf-8")
    save_model(model, recipe, folder, step, torch.bfloat16)
    file = out / SCHEDULE
    kept = json.loads(file.read_text(encoding="utf-8"))["checkpoints"] if file.is_file() else {}
    kept[folder.name] = step
    schedule = {"tokens_per_step": recipe.tokens_per_step, "checkpoints": kept}
    file.write_text(json.dumps(schedule, indent=1) + "\n", encoding="utf-8")


def last_checkpoint(out: Path) -> Path:
    """The directory of the latest checkpoint."""
    kept = json.loads((out / SCHEDULE).read_text(encoding="utf-8"))["checkpoints"]
    return out / max(kept, key=kept.__getitem__)
