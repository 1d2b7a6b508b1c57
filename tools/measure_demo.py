"""Measure what a demo model can show: `python tools/measure_demo.py DIR` prints JSON.

Arrays are indexed [layer][head], or [layer] for the positional embeddings.
"""

import argparse
import gzip
import json
import sys
from pathlib import Path

import torch
from demo_files import load_model, load_tokenizer
from demo_kernels import effective_tokens, explained_variance, extended_positions, kernels, kind
from demo_measures import copy_losses, induction, previous_token, repeated_random, token_losses
from demo_recipes import START
from holdout import TEXTS
from torch import Tensor
from transformers import GPT2LMHeadModel, PreTrainedModel, PreTrainedTokenizerFast

SKIP = 4
PERIOD = 50
WINDOWS = 64

Measured = dict[str, object]


def main() -> None:
    """Measure one directory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="directory of a demo model")
    print(to_json(measure(parser.parse_args().model)))


def measure(folder: Path) -> Measured:
    """All figures of one model."""
    model = load_model(folder)
    context = model.config.max_position_embeddings
    text = sample_windows(load_tokenizer(folder), context)
    period = min(PERIOD, (context - 1) // 2)
    copies = repeated_random(model.config.vocab_size, period, WINDOWS)
    first, second = copy_losses(model, copies)
    return {
        "windows": WINDOWS,
        "sample_loss": round(token_losses(model, text).mean().item(), 3),
        "first_copy_loss": round(first, 3),
        "second_copy_loss": round(second, 3),
        "previous_token": rounded(previous_token(model, text)),
        "induction": rounded(induction(model, copies)),
        **measure_kernels(model, text),
        **(measure_positions(model) if learned(model) else measure_bands(folder)),
    }


def learned(model: PreTrainedModel) -> bool:
    """Whether positions are embedded, and not rotations."""
    return isinstance(model, GPT2LMHeadModel)


def measure_bands(folder: Path) -> Measured:
    """How far each head's kernel moves without its short waves, and its dominant wavelength.

    The one figure that PosKernel itself measures, as the rotary page shows it.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import poskernel_core as pk

    asked = {"windows": WINDOWS, "params": {"skip": SKIP}}
    bands = pk.show("equivariant-kernel", str(folder), **asked).values["band_distance"]
    lengths = pk.show("rotary-spectrum", str(folder), **asked).values["dominant_wavelength"]
    return {
        "without_short_waves": rounded(torch.from_numpy(bands[..., 0])),
        "dominant_wavelength": rounded(torch.from_numpy(lengths), digits=1),
    }


def measure_kernels(model: PreTrainedModel, text: Tensor) -> Measured:
    """Effective token counts and kinds at one query position."""
    query = min(400, model.config.max_position_embeddings - 28)
    kernel = kernels(model, text, query, SKIP)
    return {
        "query": query,
        "skip": SKIP,
        "etc": rounded(effective_tokens(kernel), digits=1),
        "kind": [[kind(head) for head in layer] for layer in kernel],
    }


def measure_positions(model: GPT2LMHeadModel) -> Measured:
    """Variance of the extended positional embeddings in their first three components.

    Once over all positions, and once without the first few, which can outweigh the others.
    """
    layers = extended_positions(model)
    return {
        "explained_variance": [round(explained_variance(x), 3) for x in layers],
        "explained_variance_after_skip": [round(explained_variance(x[SKIP:]), 3) for x in layers],
    }


def sample_windows(tokenizer: PreTrainedTokenizerFast, length: int) -> Tensor:
    """Windows of the bundled sample, each with the start token first, [WINDOWS, length]."""
    with gzip.open(TEXTS / "sample.jsonl.gz", "rt", encoding="utf-8") as file:
        stream: list[int] = []
        for line in file:
            stream += tokenizer.backend_tokenizer.encode(json.loads(line)["text"]).ids
            if len(stream) >= WINDOWS * (length - 1):
                break
    body = torch.tensor(stream[: WINDOWS * (length - 1)]).view(WINDOWS, length - 1)
    return torch.cat([torch.full((WINDOWS, 1), START), body], dim=1)


def rounded(values: Tensor, digits: int = 3) -> list[list[float]]:
    """A tensor [L, H] as lists of short numbers."""
    return [[round(value, digits) for value in row] for row in values.tolist()]


def to_json(measured: Measured) -> str:
    """One property a line."""
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in measured.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


if __name__ == "__main__":
    main()
