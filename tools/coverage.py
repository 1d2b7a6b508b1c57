"""Measure the coverage of 95 % intervals: `python tools/coverage.py [MODEL] [--windows N]`.

The bundled sample, which no demo model was trained on, is cut into short documents. Samples are
drawn from these with replacement. Each sample's 95 % intervals are compared with the values of all
documents, for every declared value of every question that a pass answers. The table gives the
percentage of intervals that hold the truth (mean over heads, and the worst head, beside the lowest
that chance explains at a coverage of 93 %), and the bias left in the values and that of the
plug-ins, in standard errors (medians over heads). Last comes the distance between the kernels of
one head on two samples, whose truth is 0. With `--kinds`, a second table gives the coverage that
each kind of interval would have, from the same numbers and errors. With `--differences`, a third
gives the errors of the differences of two heads, divided by those of independent numbers (5 %,
median and 95 % of all pairs), and how often the interval of independent numbers holds the mean
difference of the samples.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from scipy.stats import binom

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES, Analysis
from poskernel_core.analyses.comparison.formulas import compared
from poskernel_core.analyses.measures import one_a_head
from poskernel_core.analyses.previous_token.spec import PreviousTokenParams
from poskernel_core.common.jackknife import Estimate, Kind, difference
from poskernel_core.common.result import NUMBERS, Result
from poskernel_core.common.specs import ALL_GATHERED, CorpusSpec
from poskernel_core.data.corpora import Cut, resolve, token_windows
from poskernel_core.data.made import doubled
from poskernel_core.data.texts import documents
from poskernel_core.models.catalog import locate
from poskernel_core.models.tokenizers import load_tokenizer
from tools.demo_texts import split_lines

CHARACTERS, SHORTEST = 1050, 700
"""Largest and smallest length of a document."""
EACH = 4
"""Windows that are counted on from one document, so that a sample has enough of them."""
REPEAT_EVERY = PreviousTokenParams().repeat_every
MOST = 10**6
"""More windows than the documents have."""
KINDS: tuple[Kind, ...] = ("smooth", "share", "log", "null", "distance")

NOT_ASKED = ("how-many-texts", "dilution", "equivariant-kernel")
"""Questions that one pass at two query positions does not answer, or whose subject is errors."""

LEAST, BY_CHANCE = 0.93, 0.05
"""The lowest head is held against a coverage of this, at this level over all heads of a value."""


@dataclass(frozen=True)
class Coverage:
    """Results for one value, over samples and heads.

    Attributes:
        held: fraction of the intervals that hold the truth, for each head.
        left: mean over samples of value minus truth, divided by the mean error, for each head.
        before: the same of the plug-in.
        samples: the number of samples.
    """

    held: np.ndarray
    left: np.ndarray
    before: np.ndarray
    samples: int

    @property
    def lowest(self) -> float:
        """The fraction below which chance does not bring the worst head."""
        level = BY_CHANCE / self.held.size
        return float(binom.ppf(level, self.samples, LEAST)) / self.samples

    def row(self) -> str:
        both = " | ".join(f"{np.nanmedian(array):+.2f}" for array in (self.left, self.before))
        shares = self.held.mean(), self.held.min(), self.lowest
        return f"{100 * shares[0]:.1f} | {100 * shares[1]:.0f} | {100 * shares[2]:.0f} | {both}"


def short_documents() -> list[str]:
    """Return the pieces of the bundled sample in a fixed random order."""
    pieces = [
        part
        for text in documents(CorpusSpec(name="sample"))
        for part in split_lines(text, CHARACTERS)
        if len(part) >= SHORTEST
    ]
    return [pieces[at] for at in np.random.default_rng(1).permutation(len(pieces))]


def cuts(name: str, sizes: Sequence[int], context: int) -> Iterator[Cut]:
    """Yield a sample for each number of windows, cut like any text file; for 0, all documents."""
    texts, tokenizer = short_documents(), load_tokenizer(locate(name))
    random = np.random.default_rng(2)
    with tempfile.TemporaryDirectory() as folder:
        for number, windows in enumerate(sizes):
            count = max(10, math.ceil(windows / EACH))
            chosen = random.integers(len(texts), size=count) if windows else range(len(texts))
            file = Path(folder) / f"{number}.jsonl"
            file.write_text("".join(json.dumps({"text": texts[at]}) + "\n" for at in chosen))
            yield token_windows(
                resolve(CorpusSpec(name=str(file))),
                tokenizer,
                context=context,
                windows=windows or MOST,
                start_token=True,
            )


def answered(
    name: str, sizes: Sequence[int], *, context: int = 64, query: int = 59
) -> Iterator[dict[str, Result]]:
    """Yield the answers, by question, from a sample for each number of windows; 0: from all."""
    torch.set_num_threads(1)  # batches are small
    model = pk.load(name, device="cpu")
    scheme = locate(name).geometry.scheme
    asked = [
        each
        for each in ANALYSES.values()
        if isinstance(each, Analysis)
        and each.fits_scheme(scheme)
        and each.name not in NOT_ASKED
        and any(value.has_error for value in each.values)
    ]
    gather = dict.fromkeys(one for each in asked for one in (each.gathers or ALL_GATHERED))
    if scheme == "rotary":
        gather["rotary"] = None

    def answers(cut: Cut) -> dict[str, Result]:
        gathered = pk.run_pass(
            model,
            cut,
            positions=(query // 2, query),
            queries_per_position=len(cut.tokens),
            gather=tuple(gather),
        )
        repeated = doubled(cut.tokens, REPEAT_EVERY, first=1)
        statistics = {
            "main": gathered,
            "doubled": pk.run_pass(
                model, Cut(repeated, cut.dealt), positions=(context - 1,), gather=("repeats",)
            ),
        }
        found = {}
        for question in asked:
            own = {"query": query} if "query" in question.params.model_fields else {}
            params = question.params.model_validate(own)
            one = question.answer(statistics, params, lambda done, total: None)
            found[question.name] = one.select(query=query) if "query" in one.coordinates else one
        return found

    yield from map(answers, cuts(name, sizes, context))


def coverage(truth: dict[str, Result], found: list[dict[str, Result]]) -> dict[str, Coverage]:
    """Return the coverage of intervals, by question and value."""
    table = {
        f"{question}: {value}": _held(found, truth, question, value)
        for question, whole in truth.items()
        for value in whole.lows
        if value in whole.errors  # a range holds no percentage
    }
    return table | {"one head on two samples: distance": _of_two(found)}


def by_kind(truth: dict[str, Result], found: list[dict[str, Result]]) -> Iterator[str]:
    """Yield a table: the coverage that each value would have with each kind of interval."""
    yield f"| value | declared | {' | '.join(KINDS)} |"
    yield f"|---|---|{'---:|' * len(KINDS)}"
    for question, whole in truth.items():
        for value in ANALYSES[question].values:
            if value.name not in whole.lows or value.kind not in KINDS:
                continue
            cells = []
            for kind in KINDS:
                declared = replace(value, kind=kind)
                again = [
                    {question: plugged(one[question], value.name).corrected([declared])}
                    for one in found
                ]
                one = _held(again, truth, question, value.name)
                cells.append(f"{100 * one.held.mean():.1f} ({100 * one.held.min():.0f})")
            yield f"| {question}: {value.name} | {value.kind} | {' | '.join(cells)} |"


def of_differences(found: list[dict[str, Result]]) -> Iterator[str]:
    """Yield a table: of each measure, the differences of all pairs of heads over the samples."""
    yield "| measure | error / independent: 5 %, median, 95 % | held, of 100 |"
    yield "|---|---:|---:|"
    for question, whole in found[0].items():
        for declared in ANALYSES[question].measures:
            if declared.value not in whole.errors:
                continue
            every = [one_a_head(declared, one[question], query=0) for one in found]
            one = np.array([each.estimate_of(declared.value) for each in every])
            heads = one.swapaxes(0, 1).reshape(3, len(found), -1)  # value, low, high
            pairs = np.triu_indices(heads.shape[-1], 1)
            both = [Estimate(*heads[..., side]) for side in pairs]
            gap = difference(*both)
            with np.errstate(invalid="ignore"):
                apart = np.hypot(*(each.value.std(axis=0) for each in both))
                ratio = gap.value.std(axis=0) / apart
                mean = gap.value.mean(axis=0)
                held = ((gap.low <= mean) & (mean <= gap.high)).mean(axis=0)
            known = np.isfinite(ratio)
            ends = " ".join(f"{end:.2f}" for end in np.quantile(ratio[known], (0.05, 0.5, 0.95)))
            yield f"| {declared.title} | {ends} | {100 * held[known].mean():.1f} |"


def plugged(result: Result, name: str) -> Result:
    """Return a result with the number of all texts in place of the corrected one."""
    one = result.only(name)
    return replace(one, values=one.plug_ins, plug_ins={}, lows={}, highs={})


def _held(
    found: list[dict[str, Result]], truth: dict[str, Result], question: str, value: str
) -> Coverage:
    right, axes = truth[question].values[value], truth[question].axes[value]
    low, high, shown, plug_in, error = (
        np.stack([getattr(one[question], part)[value] for one in found])
        for part in ("lows", "highs", "values", "plug_ins", "errors")
    )
    known = np.isfinite(low) & np.isfinite(right)
    # an interval may end where rounding does
    slack = 1e-6 * np.maximum(1.0, np.abs(right))
    held = np.where(known, (low - slack <= right) & (right <= high + slack), np.nan)
    others = tuple(at + 1 for at, axis in enumerate(axes) if axis not in ("layer", "head"))
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = error.mean(axis=0)
        bias = [(each.mean(axis=0) - right) / spread for each in (shown, plug_in)]
        heads = np.nanmean(held, axis=(0, *others))
    heads = np.atleast_1d(heads)
    return Coverage(heads[np.isfinite(heads)], *bias, len(found))


def _of_two(found: list[dict[str, Result]]) -> Coverage:
    """Return how often the distance of a head's kernels on two samples may be 0, as it is."""
    kernels = [one["kernel-replicates"] for one in found]
    shape = kernels[0].values["kernel"].shape[:2]
    numbers: dict[str, list[np.ndarray]] = {part: [] for part in NUMBERS}
    for one, other in zip(kernels[::2], kernels[1::2], strict=False):
        each: dict[str, np.ndarray] = {part: np.empty(shape) for part in NUMBERS}
        for at in np.ndindex(shape):
            rows = (result.values["kernel"][at] for result in (one, other))
            folds = (result.values["replicate"][:, *at] for result in (one, other))
            for part, number in compared(*rows, *folds, one.interval).items():
                each[part][at] = number
        for part, array in each.items():
            numbers[part].append(array)
    stacked = {part: np.stack(arrays) for part, arrays in numbers.items()}
    error = stacked["errors"].mean(axis=0)
    bias = [stacked[part].mean(axis=0) / error for part in ("values", "plug_ins")]
    return Coverage((stacked["lows"] <= 0).mean(axis=0), *bias, len(stacked["lows"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="demo-attn-2l")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--windows", type=int, nargs="+", default=[60])
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--differences", action="store_true")
    args = parser.parse_args()
    answers = answered(args.model, [0, *(w for w in args.windows for _ in range(args.samples))])
    truth = next(answers)
    for windows in args.windows:
        found = [*islice(answers, args.samples)]
        print(f"\n{windows} windows\n")
        print("| value | held, of 100 | worst head | by chance | left / error | before / error |")
        print("|---|---:|---:|---:|---:|---:|")
        for measure, one in coverage(truth, found).items():
            print(f"| {measure} | {one.row()} |")
        if args.kinds:
            print(*by_kind(truth, found), sep="\n", flush=True)
        if args.differences:
            print(*of_differences(found), sep="\n", flush=True)


if __name__ == "__main__":
    main()
