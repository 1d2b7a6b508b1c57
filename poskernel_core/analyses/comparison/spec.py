"""Pinned heads of any models and runs, and how far apart their kernels are."""

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from poskernel_core.analyses.base import Composition, QueryParams, SkipParams, SubQuestion
from poskernel_core.analyses.comparison import formulas
from poskernel_core.analyses.comparison.folds import KernelFolds
from poskernel_core.analyses.comparison.pins import (
    Pin,
    nearest_position,
    pinned_run,
    read_pins,
    write_pins,
)
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.jackknife import bias, jackknife
from poskernel_core.common.result import (
    NUMBERS,
    Result,
    distances,
    errors_together,
    outputs,
    token_counts,
)
from poskernel_core.common.specs import DEFAULT_QUERY, RunSpec
from poskernel_core.models import catalog
from poskernel_core.models.catalog import Located
from poskernel_core.models.training import ASK_AGAIN


class HeadDistancesParams(SkipParams):
    """Parameters of the distances between pinned heads."""

    heads: str = Field(
        "L0H0,L0H1",
        max_length=10_000,
        description="heads, separated by commas: L2H6 of this run, or L2H6@model, with "
        ";name=value for settings of its run that differ from the defaults",
    )
    query: int = Field(DEFAULT_QUERY, ge=0, description="query position n, or the nearest recorded")

    @field_validator("heads")
    @classmethod
    def _as_written(cls, heads: str) -> str:
        try:
            return write_pins(read_pins(heads))
        except BadRequest as error:
            raise ValueError(str(error)) from error


class Pinned:
    """A pinned head with its run, and its place in the model.

    Attributes:
        pin: as it was written.
        run: its run.
        layer, head: its place in the model.
        query: the run's recorded query position that is nearest to the given one.
    """

    def __init__(self, pin: Pin, run: RunSpec, located: Located, query: int) -> None:
        self.pin, self.run = pin, run
        geometry = located.geometry
        self.layer, self.head = parse_cell(pin.cell, geometry.n_layers, geometry.n_heads)
        self.query = nearest_position(run, query)


def pinned_heads(run: RunSpec, heads: str, query: int) -> list[Pinned]:
    """Return the pinned heads with their runs."""
    if not (pins := read_pins(heads)):
        raise BadRequest("Expected heads to compare, such as 'L0H0,L0H1', got none.")
    pinned = []
    for pin in pins:
        its = pinned_run(pin, run, located_once)
        pinned.append(Pinned(pin, its, located_once(its.model.name, its.model.revision), query))
    return pinned


@lru_cache(maxsize=64)
def _located(name: str, revision: str | None, _since: int) -> Located:
    return catalog.locate(name, revision)


def located_once(name: str, revision: str | None) -> Located:
    """Locate a model, asking the hub once in ten minutes; files here are looked at each time."""
    if catalog.is_local(name):
        return catalog.as_probed(catalog.locate(name, revision))
    return catalog.as_probed(_located(name, revision, int(time.monotonic() // ASK_AGAIN)))


class HeadDistances(Composition[HeadDistancesParams]):
    r"""How far apart the positional kernels of heads are, in one model or several.

    Formula: kernels are aligned by offset $k = n - i$ and renormalised on the offsets that both
    heads see; $\mathrm{TV}(K,K') = \tfrac12 \sum_k |K_k - K'_k|$, from 0 (equal) to 1 (nothing in
    common).

    Choices: of the query positions that a head's run records, the nearest to ``n`` is taken. The
    error is a jackknife over groups of texts, each left out of both heads.

    Limits: between heads that see different offsets the triangle inequality need not hold.

    Source: ours; the distance is that of "Positional kernels of attention heads".
    """

    name = "compare-kernels"
    title = "Distances between kernels of heads"
    noun_phrase = "distances between kernels of heads"
    values = (
        *distances(
            "distance [pin other]",
            "total variation between the kernels of two heads, aligned by offset",
        ),
        *outputs("""
            ± kernel [pin offset], share of attention: each head's kernel by offset; NaN where no
                key is visible
            observed [pin offset], share of attention: mean attention seen at the same position,
                ``skip`` applied and renormalised
        """),
        *token_counts("etc [pin], tokens: effective token count (ETC) of each kernel"),
        *outputs("position [pin], tokens: the query position of each head"),
    )
    texts = outputs("heads [pin], head: each head with its run, as it is written")

    def parts(self, run: RunSpec, params: HeadDistancesParams) -> Mapping[str, SubQuestion]:
        parts = {}
        for pinned in pinned_heads(run, params.heads, params.query):
            part_params = QueryParams(query=pinned.query, skip=params.skip)
            KernelFolds().needs(pinned.run, part_params)
            parts[_part_name(pinned)] = SubQuestion(KernelFolds(), pinned.run, part_params)
        return parts

    def compose(
        self, results: Mapping[str, Result], run: RunSpec, params: HeadDistancesParams
    ) -> Result:
        pinned = pinned_heads(run, params.heads, params.query)
        kernels = [
            results[_part_name(one)].select(layer=one.layer, head=one.head) for one in pinned
        ]
        rows = [one.values["kernel"] for one in kernels]
        numbers = {name: np.zeros((len(rows), len(rows))) for name in NUMBERS}
        for i, j in zip(*np.tril_indices(len(rows), -1), strict=True):
            width = max(kernels[i].interval, kernels[j].interval)
            one, other = (kernels[place].values["replicate"].astype(float) for place in (i, j))
            for part, number in formulas.compared(rows[i], rows[j], one, other, width).items():
                numbers[part][i, j] = numbers[part][j, i] = number
        spread = [formulas.token_counts(row) for row in rows]
        without = [formulas.token_counts(one.values["replicate"]) for one in kernels]
        both = list(zip(spread, without, strict=True))
        return self.result(
            params,
            {
                "distance": numbers.pop("values"),
                "kernel": _padded(rows),
                "observed": _padded([one.values["observed"] for one in kernels]),
                "etc": np.array(spread),
                "position": np.array([one.query for one in pinned]),
            },
            {
                "kernel": _padded([one.errors["kernel"] for one in kernels]),
                "etc": np.array([jackknife(replicates) for replicates in without]),
            },
            {"etc": np.array([bias(np.asarray(full), replicates) for full, replicates in both])},
            beside={"distance": numbers},
            texts={"heads": [str(one.pin) for one in pinned]},
            provenance=told_together(
                [{"errors": KernelFolds.error_counts} | one.provenance for one in kernels]
            ),
        )


def told_together(provenances: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge provenances: the first provenance, plus the run settings that differ."""
    first = provenances[0]
    settings = {
        name: ", ".join(
            dict.fromkeys(str(provenance.get(name) or "main") for provenance in provenances)
        )
        for name in ("model", "model_title", "revision", "corpus", "context", "windows", "dtype")
        if len({str(provenance.get(name)) for provenance in provenances}) > 1
    }
    rounded = dict.fromkeys(provenance.get("quantisation") for provenance in provenances)
    if any(rounded):
        settings["quantisation"] = ", ".join(filter(None, rounded))
    return first | settings | errors_together(provenances)


def _part_name(pinned: Pinned) -> str:
    """Return the name of the part with a run's kernels, which all heads of the run share."""
    alone = pinned.run.digest(query=pinned.query)[:12]
    return f"{pinned.run.model.name} {alone}"


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    longest = max(map(len, rows))
    return np.stack([np.pad(row, (0, longest - len(row)), constant_values=np.nan) for row in rows])
