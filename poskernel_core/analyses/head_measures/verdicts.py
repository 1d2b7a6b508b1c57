"""Verdicts: what every head does, in a sentence derived from its measures."""

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import Composition, QueryParams, SubQuestion
from poskernel_core.analyses.head_measures.spec import HeadMeasures, HeadMeasuresParams
from poskernel_core.analyses.reading import read
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result, outputs
from poskernel_core.common.specs import RunSpec


class HeadVerdictsParams(QueryParams):
    """Parameters of the verdicts."""

    leave_out: str = Field(
        "", max_length=1000, description="names of questions to leave out, separated by commas"
    )


def names_between_commas(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of names; duplicates are dropped."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


class HeadVerdicts(Composition[HeadVerdictsParams]):
    r"""What every head does, in a sentence derived from its measures, and all these measures.

    Formula: a measure $x \pm \sigma$ of bias $b$ passes a limit $t$ where $x - b - w\sigma \ge t$
    and fails it where $x - b + w\sigma < t$; in between it is open. A share of attention that fails
    its limit is denied where it also fails a second one (0.03; induction 0.05), and weak where it
    passes that. The 95 % interval is $x - b \pm
    w\sigma$: for errors over $G$ groups $w$ is Student's $t_{0.975,\,G-1}$ (2.26 for ten), else
    1.96. The sentence has at most three clauses: the largest share of the head's attention, what
    explains it, and what the head does; ``claim`` holds the others. A kernel is local where the
    mass in the last tokens passes 0.5, uniform where ETC passes half of the visible keys, and
    decays slowly where both fail. A head looks $k$ tokens back where its largest diagonal $P(k)$
    passes 0.3. It is an induction head, is drawn to duplicates of the current token, or has a sink
    on the first key, where the share of attention in question passes 0.3. Its sink follows what
    stands first, position 0 or the start token where that effect passes 0.1 (only of a sink that
    does not fail). It is contextual where its denominator's coefficient of variation fails 0.25,
    its ETC is 30 tokens or more, and it is neither local nor drawn to duplicates. Position or
    content explains its scores where its share of their variance passes 0.5. Most of its positional
    score comes from one component where that one's share passes 0.5 and all others fail it. The
    mean attention is far from the kernel where the distance of the two passes 0.5, and near it
    where it fails. A head keeps its reach where both slopes of its dilution fail 0.25, and spreads
    over all there is where both pass 0.75. A kernel *foresees* attention where the share that falls
    on 32 keys chosen by it passes 0.5, if these are at most half of the visible keys. A wavelength
    dominates if its swing is larger than the next largest swing.

    Choices: limits are those of the questions themselves, where these have any. A number
    without an interval passes no limit. Nothing is denied of a measure without a second limit.
    Measures that the model cannot have, and those of questions that ``unknown`` names, are left out
    of the sentence.

    Limits: limits are conventions; a head just below a limit differs little from a head just above
    it. An interval holds for one claim and for texts of one corpus, not for all claims about all
    heads together.

    Source: ours; the kinds are those of "Positional kernels of attention heads".
    """

    name = "verdicts"
    title = "What every head does"
    noun_phrase = "what every head does"
    can_lack_parts = True
    values = (
        *HeadMeasures.values,
        *outputs("ranked [measure], heads: number of heads that have a rank"),
    )
    texts = (
        *HeadMeasures.texts,
        *outputs("""
            verdict [layer head], sentence: what each head does
            claim [layer head claim], sentence: what else is known of each head
            claim_question [layer head claim], name: the question that a claim answers
            headline [layer head], predicate: what the verdict begins with
            unknown [missing], name: titles of the questions that were left out
        """),
    )

    def parts(self, run: RunSpec, params: HeadVerdictsParams) -> Mapping[str, SubQuestion]:
        out = names_between_commas(params.leave_out)
        every = HeadMeasures().parts(run, _all_of(params))
        parts = {name: part for name, part in every.items() if name not in out}
        if not parts:
            raise BadRequest(f"No question is left: leave out fewer of {', '.join(every)}.")
        return parts

    def compose(
        self, results: Mapping[str, Result], run: RunSpec, params: HeadVerdictsParams
    ) -> Result:
        table = HeadMeasures().compose(results, run, _all_of(params))
        known = {name: _at(result, params.query) for name, result in results.items()}
        gone = next(iter(results.values())).provenance.get("layers_without_heads", {})
        layers, heads = table.values["value"].shape[1:]
        readings = [[read(known, layer, head) for head in range(heads)] for layer in range(layers)]
        rest = [[reading.rest() for reading in row] for row in readings]
        longest = max(len(lines) for row in rest for lines in row)
        padded = [[[*lines, *[("", "")] * (longest - len(lines))] for lines in row] for row in rest]
        every = HeadMeasures().parts(run, _all_of(params))
        values = {**table.values, "ranked": np.isfinite(table.values["rank"]).sum(axis=(1, 2))}
        return self.result(
            params,
            values,
            beside={"value": table.beside("value")},
            texts={
                **{name: text.tolist() for name, text in table.texts.items()},
                "verdict": [
                    [
                        f"No head: layer {layer} is {gone[str(layer)]}."
                        if str(layer) in gone
                        else reading.verdict(head_name(layer, head))
                        for head, reading in enumerate(row)
                    ]
                    for layer, row in enumerate(readings)
                ],
                "headline": [[reading.headline for reading in row] for row in readings],
                **{
                    name: [[[line[place] for line in lines] for lines in row] for row in padded]
                    for place, name in enumerate(("claim_question", "claim"))
                },
                "unknown": [self.questions[name].title for name in every if name not in results],
            },
            provenance=table.provenance,
        )


def _all_of(params: HeadVerdictsParams) -> HeadMeasuresParams:
    return HeadMeasuresParams(query=params.query, skip=params.skip, experiments=True)


def _at(result: Result, query: int) -> Result:
    return result.select(query=query) if query in result.coordinates.get("query", ()) else result
