"""Measure what a demo model can show: `python tools/measure_demo.py DIR` prints JSON.

Arrays are indexed [layer][head], or [layer] for the positional embeddings. Attention and losses
come from transformers' own model; kernels, helix and wavelengths from PosKernel.
`train_demo.py` writes them to `measured.json`, and a model card with them to `README.md`.
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

CARD = """\
---
license: mit
language: en
library_name: transformers
pipeline_tag: text-generation
tags: [interpretability, attention, positional-embeddings, demo]
---

# {name}

A small model to look into, bundled with PosKernel so that every page works without a network. It
is no good at writing: it is made to have the heads that the pages teach.

{blocks}: {layers} layers of {heads} heads{shared}, width {width}, context {context}, its own \
byte-level vocabulary of {vocabulary:,} tokens, {positions} positions, tied embeddings, {dtype}.

## Training

{steps:,} steps of {step_tokens:,} tokens, {millions:.1f} million tokens in all, by
`tools/train_demo.py {name}`. {text} of the windows are text, {repeated} text repeated, {random}
random tokens repeated; every window begins with the start token.{note}

| domain | characters | origin and licence |
|---|---:|---|
{data}

About {held_out} of the public-domain texts, and all that overlaps the bundled Bible chapters, was
held out; the bundled sample is taken from what was held out.

## Measured

By `tools/measure_demo.py`, on {windows} windows of the bundled sample; every head's figure is in
`measured.json`.

| property | value |
|---|---|
{figures}
"""


def measure(folder: Path) -> dict[str, Any]:
    """Return all figures of a model."""
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

    Over all positions, and without the first few, which can outweigh the others.
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
    """An array as nested lists of short numbers."""
    return np.round(np.asarray(values, dtype=float), digits).tolist()


def to_json(measured: dict[str, Any]) -> str:
    """Return the figures as JSON, one property per line."""
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in measured.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def write_card(out: Path, folder: Path, pieces: list[Piece], recipe: dict[str, Any]) -> None:
    """Measure the model in `folder`, write the figures there, and the model card to `out`.

    `recipe` holds the fields of the recipe, name, steps, tokens per step, and shares of windows.
    """
    measured = measure(folder)
    (folder / "measured.json").write_text(to_json(measured) + "\n", encoding="utf-8")
    sizes: Counter[str] = Counter()
    for piece in pieces:
        sizes[piece.domain] += len(piece.text)
    (out / "README.md").write_text(card(measured, sizes, recipe, folder != out), encoding="utf-8")


def card(
    measured: dict[str, Any], sizes: dict[str, int], recipe: dict[str, Any], checkpoints: bool
) -> str:
    """The model card; `sizes` are the characters of each training domain."""
    llama, mlp = recipe["llama"], recipe["mlp"]
    learned = "GPT-2 architecture" if mlp else "Attention only (GPT-2 blocks without MLPs)"
    repeated, random = recipe["repeated"], recipe["random"]
    note = fill(recipe["note"], 100, break_on_hyphens=False)
    rows = [
        f"| {domain} | {size:,} | {LICENCES.get(domain, 'not known to the tool')} |"
        for domain, size in sorted(sizes.items())
    ]
    told = {
        "blocks": "Llama architecture" if llama else learned,
        "shared": f" ({llama['num_key_value_heads']} of keys and values)" if llama else "",
        "positions": "rotary" if llama else "learned",
        "dtype": "bfloat16" if checkpoints else "float32",
        "millions": recipe["steps"] * recipe["step_tokens"] / 1e6,
        "text": f"{100 * (1 - repeated - random):.0f} %",
        "repeated": f"{100 * repeated:.0f} %",
        "random": f"{100 * random:.0f} %",
        "note": f"\n\n{note}" if note else "",
        "data": "\n".join(rows),
        "held_out": f"{SHARE:.0%}",
        "windows": measured["windows"],
        "figures": "\n".join(f"| {name} | {value} |" for name, value in figures(measured)),
    }
    return CARD.format(**recipe | told)


def figures(measured: dict[str, Any]) -> list[tuple[str, str]]:
    """Return name and value of each row of the card's table."""
    kinds = Counter(kind for layer in measured["kind"] for kind in layer)
    at = f"query {measured['query']}, skip {measured['skip']}"
    rows = [
        ("loss on the sample, nats a token", f"{measured['sample_loss']:.2f}"),
        ("loss on random tokens, first copy", f"{measured['first_copy_loss']:.2f}"),
        ("loss on random tokens, second copy", f"{measured['second_copy_loss']:.2f}"),
        ("previous-token heads, `P(1)`", best_heads(measured["previous_token"])),
        ("induction heads, score", best_heads(measured["induction"])),
        (f"kinds of heads ({at})", ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())),
        ("effective token count, least to most", spread(measured["etc"])),
    ]
    if "explained_variance" in measured:
        shares = ", ".join(f"{share:.1%}" for share in measured["explained_variance"])
        return [
            *rows,
            ("variance in three components, `W_pos` and before each later layer", shares),
        ]
    moved = best_heads(measured["without_short_waves"])
    return [
        *rows,
        ("kernels that move most without waves under 16 tokens, TV distance", moved),
        ("dominant wavelength, least to most", spread(measured["dominant_wavelength"])),
    ]


def best_heads(scores: list[list[float]], count: int = 3) -> str:
    """The highest scores with their heads, as in `L1H6 0.93`."""
    cells = [(v, f"L{i}H{j}") for i, row in enumerate(scores) for j, v in enumerate(row)]
    best = sorted(cells, reverse=True)[:count]
    return ", ".join(f"{cell} {value:.2f}" for value, cell in best)


def spread(values: list[list[float]]) -> str:
    """The smallest and largest of all heads' values."""
    return f"{np.min(values):.1f} to {np.max(values):.1f} tokens"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="directory of a demo model")
    print(to_json(measure(parser.parse_args().model)))
