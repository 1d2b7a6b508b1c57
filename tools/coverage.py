"""Measure the coverage of 95 % intervals: `python tools/coverage.py [MODEL]`.

The bundled sample, which no demo model was trained on, is cut into short documents. These are
split into disjoint samples of at least ten documents each. Each sample's 95 % intervals, centred on
the sample's values minus their biases, are compared with the values of all samples together. For
each measure, the table gives the percentage of intervals that hold the truth (over all heads, and
for the worst head), and the bias in standard errors (the true bias, and the jackknife's estimate).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import poskernel_core as pk
from poskernel_core.common.result import Result
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.data.corpora import Cut, resolve, token_windows
from poskernel_core.data.texts import documents
from poskernel_core.models.catalog import locate
from poskernel_core.models.tokenizers import load_tokenizer
from tools.demo_texts import split_lines

CHARACTERS, SHORTEST = 1050, 700
"""Largest and smallest length of a document."""
EACH = 11
"""Documents per sample."""
MEASURES = {
    "ETC": ("etc", "etc"),
    "half-mass distance": ("etc", "half_mass_distance"),
    "distance to observed attention": ("etc", "attention_distance"),
    "attention to the previous token": ("profile", "profile"),
    "attention foreseen with 16 keys": ("foreseen-attention", "share_16"),
    "gain over first and last keys": ("foreseen-attention", "gain_32"),
}


@dataclass(frozen=True)
class Coverage:
    """Results for one measure, over samples and heads.

    Attributes:
        held: fraction of the intervals that hold the truth, for each head.
        bias: mean over samples of value minus truth, divided by the mean error, for each head.
        told: mean jackknife estimate of the bias, divided by the mean error.
    """

    held: np.ndarray
    bias: np.ndarray
    told: np.ndarray

    def row(self) -> str:
        """Return a row of the table."""
        middle = (float(np.median(array)) for array in (self.bias, self.told))
        both = " | ".join(f"{each:+.2f}" for each in middle)
        return f"{100 * self.held.mean():.1f} | {100 * self.held.min():.0f} | {both}"


def short_documents() -> list[str]:
    """Return the pieces of the bundled sample in a fixed random order."""
    pieces = [
        part
        for text in documents(CorpusSpec(name="sample"))
        for part in split_lines(text, CHARACTERS)
        if len(part) >= SHORTEST
    ]
    return [pieces[at] for at in np.random.default_rng(1).permutation(len(pieces))]


def cuts(samples: int, name: str, context: int, windows: int) -> Iterator[Cut]:
    """Yield the windows of each sample, cut like those of any text file."""
    texts, tokenizer = short_documents(), load_tokenizer(locate(name))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(samples):
            file = Path(folder) / f"{number}.jsonl"
            some = texts[number * EACH : (number + 1) * EACH]
            file.write_text("".join(json.dumps({"text": text}) + "\n" for text in some))
            yield token_windows(
                resolve(CorpusSpec(name=str(file))),
                tokenizer,
                context=context,
                windows=windows,
                start_token=True,
            )


def coverage(
    name: str, samples: int, *, context: int = 64, windows: int = 60, query: int = 59
) -> dict[str, Coverage]:
    """Return the coverage of intervals, by measure."""
    model = pk.load(name, device="cpu")

    def answers(cut: Cut) -> dict[str, Result]:
        gathered = pk.run_pass(
            model,
            cut,
            positions=(query,),
            queries_per_position=len(cut.tokens),
            gather=("keys", "queries", "patterns"),
        )
        return {
            "etc": pk.analyse("etc", gathered).select(query=query),
            "profile": pk.analyse("profile", gathered).select(offset=1),
            "foreseen-attention": pk.analyse("foreseen-attention", gathered, query=query),
        }

    every = list(cuts(samples, name, context, windows))
    found = [answers(cut) for cut in every]
    truth = answers(Cut(np.concatenate([cut.tokens for cut in every]), "documents"))
    return {measure: _held(found, truth, *where) for measure, where in MEASURES.items()}


def _held(
    found: list[dict[str, Result]], truth: dict[str, Result], question: str, value: str
) -> Coverage:
    right = truth[question].values[value]
    numbers, errors, biases = (
        np.stack([getattr(one[question], part).get(value, 0 * right) for one in found])
        for part in ("values", "errors", "biases")
    )
    widths = np.array([one[question].interval for one in found])[:, None, None]
    held = (np.abs(numbers - biases - right) <= widths * errors).mean(axis=0)
    error = errors.mean(axis=0)
    return Coverage(held, (numbers.mean(axis=0) - right) / error, biases.mean(axis=0) / error)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="demo-attn-2l")
    parser.add_argument("--samples", type=int, default=100)
    args = parser.parse_args()
    print("| measure | held, of 100 | worst head | bias / error | told / error |")
    print("|---|---:|---:|---:|---:|")
    for measure, one in coverage(args.model, args.samples).items():
        print(f"| {measure} | {one.row()} |")


if __name__ == "__main__":
    main()
