"""Measure what a demo model can show: `python tools/measure_demo.py DIR` prints JSON.

Arrays are indexed [layer][head], or [layer] for the positional embeddings. Attention and losses
come from transformers' own model; kernels, helix and wavelengths from PosKernel.
`train_demo.py` writes the figures to `measured.json`, and a model card with them to `README.md`.
"""

import argparse
import gzip
import json
import sys
from collections import Counter
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import torch
from jinja2 import Environment, StrictUndefined
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import GPT2LMHeadModel, PreTrainedModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import poskernel_core as pk
from tests.support.builders import hf_eager_model
from tools.demo_texts import SAMPLE, SHARE, Piece

START = 0
SKIP = 4
PERIOD = 50
WINDOWS = 64

LICENCES = {
    "bible": "King James Version; public domain",
    "shakespeare": "plays; public domain",
    "gutenberg": "books of Project Gutenberg; public domain",
    "politics": "speeches of United States presidents; public domain",
    "foreign": "Genesis in several languages; free translations",
    "python": "Python standard library; PSF licence",
    "pydocs": "Python documentation; PSF licence",
    "postgres": "PostgreSQL manual; PostgreSQL licence",
    "kernel": "Linux kernel documentation; GPL-2",
    "git": "Git manuals; GPL-2",
    "linux": "Debian handbook and reference; GPL-2 or CC BY-SA",
}

CARD = Path(__file__).with_name("model_card.md.jinja")


def measure(folder: Path) -> dict[str, Any]:
    model = hf_eager_model(folder).float()
    context = model.config.max_position_embeddings
    text = sample_windows(Tokenizer.from_file(str(folder / "tokenizer.json")), context)
    period = min(PERIOD, (context - 1) // 2)
    generator = torch.Generator().manual_seed(0)
    once = torch.randint(START + 1, model.config.vocab_size, (WINDOWS, period), generator=generator)
    copies = torch.cat([torch.full((WINDOWS, 1), START), once, once], dim=1)
    losses, attention = run(model, text)
    copy_losses, copying = run(model, copies)
    return {
        "windows": WINDOWS,
        "sample_loss": rounded(losses.mean()),
        "first_copy_loss": rounded(copy_losses[:, :period].mean()),
        "second_copy_loss": rounded(copy_losses[:, period + 1 :].mean()),
        # attention to the previous token, without the start token
        "previous_token": rounded(attention[..., 1:, 1:].diagonal(-1, -2, -1).mean(-1)),
        # attention from a token of the second copy to the one after its first copy: n + 1 - period
        "induction": rounded(copying.diagonal(1 - period, -2, -1)[..., 2:].mean(-1)),
        **kernels(folder, text),
        **(helix(folder) if isinstance(model, GPT2LMHeadModel) else bands(folder)),
    }


@torch.inference_mode()
def run(model: PreTrainedModel, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return each next token's loss in nats, [windows, T - 1], and mean attention, [L, H, T, T]."""
    losses, total = [], torch.zeros(())
    for window in tokens:
        found = model(window[None], output_attentions=True)
        losses.append(cross_entropy(found.logits[0, :-1].float(), window[1:], reduction="none"))
        total = total + torch.cat(found.attentions)
    return torch.stack(losses), total / len(tokens)


def kernels(folder: Path, text: Tensor) -> dict[str, Any]:
    """Effective token counts and kinds at one query position, over windows in ten equal groups."""
    query = min(400, text.shape[1] - 28)
    model = pk.load(str(folder), device="cpu")
    gathered = pk.run_pass(model, text.numpy(), positions=(query,), queries_per_position=WINDOWS)
    found = pk.analyse("etc", gathered, skip=SKIP).select(query=query)
    kinds = np.array(found.text_of("kind")).tolist()
    return {"query": query, "skip": SKIP, "etc": rounded(found.values["etc"], 1), "kind": kinds}


def helix(folder: Path) -> dict[str, Any]:
    """Variance of the extended positional embeddings explained by their first three components.

    Given over all positions, and without the first few positions, which can outweigh the others.
    """
    found = {}
    for name, left_out in (("", 0), ("_after_skip", SKIP)):
        shares = pk.show("helix", str(folder), params={"leave_out": left_out}).values
        found[f"explained_variance{name}"] = rounded(shares["explained_variance"][:, :3].sum(-1))
    return found


def bands(folder: Path) -> dict[str, Any]:
    """How far each head's kernel moves without short waves, and its dominant wavelength."""
    asked = {"windows": WINDOWS, "params": {"skip": SKIP}}
    moved = pk.show("equivariant-kernel", str(folder), **asked).values["band_distance"]
    lengths = pk.show("rotary-spectrum", str(folder), **asked).values["dominant_wavelength"]
    return {
        "without_short_waves": rounded(moved[..., 0]),
        "dominant_wavelength": rounded(lengths, digits=1),
    }


def sample_windows(tokenizer: Tokenizer, length: int) -> Tensor:
    """Windows of the bundled sample, each starting with the start token, [WINDOWS, length]."""
    wanted = WINDOWS * (length - 1)
    stream: list[int] = []
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as file:
        for line in file:
            stream += tokenizer.encode(json.loads(line)["text"]).ids
            if len(stream) >= wanted:
                break
    body = torch.tensor(stream[:wanted]).view(WINDOWS, length - 1)
    return torch.cat([torch.full((WINDOWS, 1), START), body], dim=1)


def rounded(values: Tensor | np.ndarray, digits: int = 3) -> Any:
    return np.round(np.asarray(values, dtype=float), digits).tolist()


def to_json(measured: dict[str, Any]) -> str:
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in measured.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def write_card(out: Path, folder: Path, pieces: list[Piece], recipe: dict[str, Any]) -> None:
    """Measure the model in `folder`, write the figures there, and the model card to `out`.

    `recipe` holds the recipe's fields, and the name, steps, tokens per step and shares of windows.
    """
    measured = measure(folder)
    (folder / "measured.json").write_text(to_json(measured) + "\n", encoding="utf-8")
    sizes: Counter[str] = Counter()
    for piece in pieces:
        sizes[piece.domain] += len(piece.text)
    kinds = Counter(kind for layer in measured["kind"] for kind in layer)
    told = recipe | {
        "note": fill(recipe["note"], 100, break_on_hyphens=False),
        "kinds": ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()),
        "sizes": sizes,
        "measured": measured,
        "checkpoints": folder != out,
    }
    known = {"LICENCES": LICENCES, "SHARE": SHARE, "best_heads": best_heads, "spread": spread}
    environment = Environment(trim_blocks=True, undefined=StrictUndefined)
    card = environment.from_string(CARD.read_text("utf-8"), known).render(told)
    (out / "README.md").write_text(card, encoding="utf-8")


def best_heads(scores: list[list[float]]) -> str:
    """The three highest scores with their heads, as in `L1H6 0.93`."""
    cells = [(v, f"L{i}H{j}") for i, row in enumerate(scores) for j, v in enumerate(row)]
    return ", ".join(f"{cell} {value:.2f}" for value, cell in sorted(cells, reverse=True)[:3])


def spread(values: list[list[float]]) -> str:
    return f"{np.min(values):.1f} to {np.max(values):.1f} tokens"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="directory of a demo model")
    print(to_json(measure(parser.parse_args().model)))
