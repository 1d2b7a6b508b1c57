"""The model card and the measured figures of a demo model: `README.md` and `measured.json`."""

from collections import Counter
from pathlib import Path
from textwrap import fill

from demo_recipes import Recipe
from holdout import SHARE, Piece
from measure_demo import Measured, measure, to_json

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

{shape}

## Training

{steps:,} steps of {step_tokens:,} tokens, {tokens:.1f} million tokens in all, by
`tools/train_demo.py {name}`. {text} of the windows are text, {repeated} text repeated, {random}
random tokens repeated; every window begins with the start token.{note}

| domain | characters | origin and licence |
|---|---:|---|
{data}

About {share:.0%} of the public-domain texts, and all that overlaps the bundled Bible chapters, was
held out; the bundled sample is taken from what was held out.

## Measured

By `tools/measure_demo.py`, on {windows} windows of the bundled sample; every head's figure is in
`measured.json`.

| property | value |
|---|---|
{figures}
"""


def write_card(
    recipe: Recipe,
    out: Path,
    pieces: list[Piece],
    steps: int,
    measured_in: Path | None = None,
) -> None:
    """Measure the model in `out`, or its last checkpoint, and write the card in `out`.

    The figures are written beside the weights that were measured.
    """
    measured = measure(measured_in or out)
    (measured_in or out).joinpath("measured.json").write_text(
        to_json(measured) + "\n", encoding="utf-8"
    )
    card = CARD.format(
        name=recipe.name,
        shape=shape(recipe, "bfloat16" if measured_in else "float32"),
        steps=steps,
        text=percent(1 - recipe.repeated_share - recipe.random_share),
        repeated=percent(recipe.repeated_share),
        random=percent(recipe.random_share),
        note=f"\n\n{fill(recipe.note, 100, break_on_hyphens=False)}" if recipe.note else "",
        step_tokens=recipe.tokens_per_step,
        tokens=steps * recipe.tokens_per_step / 1e6,
        data=data_table(pieces),
        share=SHARE,
        windows=measured["windows"],
        figures="\n".join(f"| {name} | {value} |" for name, value in figures(measured)),
    )
    (out / "README.md").write_text(card, encoding="utf-8")


def percent(share: float) -> str:
    """A share as in `55 %`."""
    return f"{100 * share:.0f} %"


def shape(recipe: Recipe, dtype: str) -> str:
    """The model's shape in one sentence."""
    blocks = "GPT-2 architecture" if recipe.mlp else "Attention only (GPT-2 blocks without MLPs)"
    positions, heads = "learned positions", f"{recipe.heads} heads"
    if recipe.key_heads:
        blocks, positions = "Llama architecture", "rotary positions"
        heads += f" ({recipe.key_heads} of keys and values)"
    return (
        f"{blocks}: {recipe.layers} layers of {heads}, width {recipe.width}, context "
        f"{recipe.context}, its own byte-level vocabulary of {recipe.vocabulary:,} tokens, "
        f"{positions}, tied embeddings, {dtype}."
    )


def data_table(pieces: list[Piece]) -> str:
    """One row a domain: characters trained on, and where they come from."""
    sizes: Counter[str] = Counter()
    for piece in pieces:
        sizes[piece.domain] += len(piece.text)
    rows = [
        f"| {domain} | {size:,} | {LICENCES.get(domain, 'not known to the tool')} |"
        for domain, size in sorted(sizes.items())
    ]
    return "\n".join(rows)


def figures(measured: Measured) -> list[tuple[str, str]]:
    """Name and value of each row of the card's table."""
    kinds = Counter(kind for layer in measured["kind"] for kind in layer)
    at = f"query {measured['query']}, skip {measured['skip']}"
    return [
        ("loss on the sample, nats a token", f"{measured['sample_loss']:.2f}"),
        ("loss on random tokens, first copy", f"{measured['first_copy_loss']:.2f}"),
        ("loss on random tokens, second copy", f"{measured['second_copy_loss']:.2f}"),
        ("previous-token heads, `P(1)`", best_heads(measured["previous_token"])),
        ("induction heads, score", best_heads(measured["induction"])),
        (f"kinds of heads ({at})", ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())),
        ("effective token count, least to most", spread(measured["etc"])),
        *positions(measured),
    ]


def positions(measured: Measured) -> list[tuple[str, str]]:
    """What is said of learned positions, or of rotations."""
    if "explained_variance" in measured:
        shares = ", ".join(f"{share:.1%}" for share in measured["explained_variance"])
        return [("variance in three components, `W_pos` and before each later layer", shares)]
    moved = measured["without_short_waves"]
    return [
        ("kernels that move most without waves under 16 tokens, TV distance", best_heads(moved)),
        ("dominant wavelength, least to most", spread(measured["dominant_wavelength"])),
    ]


def best_heads(scores: list[list[float]], count: int = 3) -> str:
    """The highest scores with their heads, as in `L1H6 0.93`."""
    cells = [(v, f"L{i}H{j}") for i, row in enumerate(scores) for j, v in enumerate(row)]
    best = sorted(cells, reverse=True)[:count]
    return ", ".join(f"{cell} {value:.2f}" for value, cell in best)


def spread(values: list[list[float]]) -> str:
    """The least and the greatest of all heads' values."""
    flat = [value for row in values for value in row]
    return f"{min(flat):.1f} to {max(flat):.1f} tokens"
