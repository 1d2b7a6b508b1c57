"""Heads over training: any measure of all heads, or one head's kernel, at each checkpoint."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int
from pydantic import Field

from poskernel_core.analyses.base import Composition, QueryParams, Question, SubQuestion
from poskernel_core.analyses.kernels.kernel import KernelParams, PositionalKernel
from poskernel_core.analyses.measures import asked_with, measure_called, one_a_head
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.jackknife import difference
from poskernel_core.common.result import (
    OF_MEASURE,
    Result,
    beside_of,
    errors_together,
    estimates,
    outputs,
    token_counts,
)
from poskernel_core.common.specs import ModelSpec, RunSpec, digest
from poskernel_core.models import catalog
from poskernel_core.models.checkpoints import Checkpoint
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.training import TrainingRun, first_of_equals, required_run, spec_of

MAX_LIST = 20_000
OF_STEPS = outputs("""
    tokens [step], tokens: tokens read before each checkpoint; NaN: not known
    equal_to [step], steps: step of an earlier checkpoint with the same weights; NaN: there is none
""")
"""Values that all questions about checkpoints have."""


class CheckpointParams(QueryParams):
    """Parameters of questions about the checkpoints of a training run."""

    checkpoints: str = Field(
        "",
        max_length=MAX_LIST,
        description="checkpoints, separated by commas, or log: those nearest to powers of two "
        "(default: all)",
    )


C = TypeVar("C", bound=CheckpointParams)


class OfCheckpoints(Composition[C]):
    """A question asked of each checkpoint of a training run; results have an axis ``step``."""

    def with_params(self, run: RunSpec, params: C) -> RunSpec:
        """Return the run with the whole training as its model, even if it names one checkpoint."""
        training = chosen_run(run, params)
        specs = [spec_of(training, checkpoint) for checkpoint in training.checkpoints]
        marks = [[spec.revision, spec.fingerprint if training.local else ""] for spec in specs]
        model = ModelSpec(name=training.model, fingerprint=digest(marks))
        return run.model_copy(update={"model": model})


class OverTrainingParams(CheckpointParams):
    """Parameters of a measure over training."""

    measure: str = Field(
        "induction score", description="measure of the grid of all heads, by its title"
    )


class OverTraining(OfCheckpoints[OverTrainingParams]):
    r"""A measure of every head at each checkpoint of a run, and when it emerged in each head.

    Formula: the **emergence** of a head's measure $m(s)$, which ends at $m(S)$, is the first step
    from which $m$ stays above $m(S)/2$. Between the checkpoints $s_0 < s_1$ around it, $\ln s = \ln
    s_0 + \frac{m(S)/2 - m(s_0)}{m(s_1) - m(s_0)} (\ln s_1 - \ln s_0)$; its interval is $[s_0,
    s_1]$.

    Choices: step 0 has no logarithm, so a measure that is above half at the first checkpoint, or at
    the one after step 0, gets that checkpoint as its emergence, and the interval begins at 0. The
    sign of a measure that ends below 0 is flipped. If a measure is above half of its final value at
    all checkpoints, and is further from 0 at the first than at the last, it fell: it has no
    emergence.

    Limits: if a measure ends near where it began, noise can cross half of the final value; see
    ``change`` and its error, which is too large where the texts, the same at both, move both values
    alike. Changes between two checkpoints are invisible. Token counts follow the training schedule.

    Source: ours; pictures of heads over training are in Olsson et al., "In-context learning and
    induction heads".
    """

    name = "over-training"
    title = "A measure over training"
    noun_phrase = "a measure of every head over training"
    values = (
        *outputs(f"""
            ± measure [step layer head], {OF_MEASURE}: the chosen measure at each checkpoint
            ± change [layer head], {OF_MEASURE}: its value at the last checkpoint minus that at the
                first, with the error of two independent values; NaN where the measure is a kind
            emergence [layer head], steps: step from which the measure stays above half of its final
                value; NaN where it fell, or ends at 0
            emergence_earliest emergence_latest [layer head], steps: the checkpoints around it:
                between them it could lie anywhere
            count [step label], heads: heads of each kind, in the order of its labels; empty where
                the measure is no kind
        """),
        *OF_STEPS,
    )

    def parts(self, run: RunSpec, params: OverTrainingParams) -> Mapping[str, SubQuestion]:
        question, _ = measure_called(params.measure, self.questions.values())
        geometry = _geometry(run.model)
        return {
            checkpoint.revision: SubQuestion(
                question,
                at,
                asked_with(question, at, geometry, query=params.query, skip=params.skip),
            )
            for checkpoint, at in _runs(run, params)
        }

    def compose(
        self, results: Mapping[str, Result], run: RunSpec, params: OverTrainingParams
    ) -> Result:
        question, declared = measure_called(params.measure, self.questions.values())
        name = declared.value
        one = [
            one_a_head(declared, step_result, query=params.query).only(name)
            for step_result in results.values()
        ]
        training = chosen_run(run, params)
        steps = np.array([checkpoint.step for checkpoint in training.checkpoints])
        values = {
            "measure": np.stack([step_result.values[name] for step_result in one])
        } | _of_steps(training, results)
        labels = one[-1].labels.get(name, ())
        values["count"] = label_counts(values["measure"].astype(int), len(labels))
        measure = np.where(bool(labels), np.nan, values["measure"].astype(float))  # kinds have none
        values |= {"change": measure[-1] - measure[0], **emergence(steps, measure)}
        beside = {}
        if all(name in step_result.errors for step_result in one):
            beside["measure"] = beside_of((result, name) for result in one)
            change = difference(one[-1].estimate_of(name), one[0].estimate_of(name))
            errors = beside["measure"]["errors"]
            beside["change"] = {
                "errors": np.hypot(errors[0], errors[-1]),
                "lows": change.low,
                "highs": change.high,
                "plug_ins": values["change"],
            }
        result = self.result(
            params,
            values,
            beside=beside,
            labels={"measure": labels} if labels else {},
            coordinates={"step": steps},
            provenance=_provenance(training, results, run, question),
        )
        unit = one[-1].units[name]
        return replace(result, units=result.units | {"measure": unit, "change": unit})


class KernelOverTrainingParams(CheckpointParams):
    """Parameters of one head's kernel over training."""

    head: str = Field("L0H0", description="the head, such as L0H3")


class KernelOverTraining(OfCheckpoints[KernelOverTrainingParams]):
    r"""One head's positional kernel, and the attention observed, at each checkpoint of a run.

    Formula: $K_s(n,i)$ is the kernel $\mathrm{softmax}_i\, \text{scale}\; q_n \cdot m_i$ of
    the checkpoint of step $s$, with its own queries $q_n$ and mean keys $m_i$.

    Choices: as for the positional kernel; the mean is over the queries of many windows. With skip 0
    the observed attention to key 0 shows how much attention the head parks on the first token.

    Limits: all checkpoints read the same windows, so their errors are not independent.

    Source: ours; the kernel is that of "Positional kernels of attention heads".
    """

    name = "kernel-over-training"
    title = "A kernel over training"
    noun_phrase = "a head's kernel over training"
    values = (
        *estimates("kernel [step key], share of attention: the head's kernel at each checkpoint"),
        *outputs("""
            observed [step key], share of attention: mean attention observed, ``skip`` applied and
                renormalised
        """),
        *token_counts("etc [step], tokens: effective token count of the kernel"),
        *OF_STEPS,
    )

    def parts(self, run: RunSpec, params: KernelOverTrainingParams) -> Mapping[str, SubQuestion]:
        geometry = _geometry(run.model)
        parse_cell(params.head, geometry.n_layers, geometry.n_heads)
        question = PositionalKernel()
        part_params = KernelParams(query=params.query, skip=params.skip)
        question.needs(run, part_params)
        return {
            checkpoint.revision: SubQuestion(question, at, part_params)
            for checkpoint, at in _runs(run, params)
        }

    def compose(
        self, results: Mapping[str, Result], run: RunSpec, params: KernelOverTrainingParams
    ) -> Result:
        geometry = _geometry(run.model)
        layer, head = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
        one = [result.select(layer=layer, head=head) for result in results.values()]
        training = chosen_run(run, params)
        names = ("kernel", "observed", "etc")
        return self.result(
            params,
            {name: np.stack([result.values[name] for result in one]) for name in names}
            | _of_steps(training, results),
            beside={
                name: beside_of((result, name) for result in one) for name in ("kernel", "etc")
            },
            coordinates={
                "step": np.array([checkpoint.step for checkpoint in training.checkpoints])
            },
            provenance=_provenance(training, results, run, PositionalKernel()),
        )


def chosen_run(run: RunSpec, params: CheckpointParams) -> TrainingRun:
    """Return the chosen checkpoints of a model's training run.

    Raises:
        UnknownModel, BadRequest: the model has no checkpoints, or lacks a chosen one.
    """
    return required_run(run.model.name).chosen(params.checkpoints)


def _runs(run: RunSpec, params: CheckpointParams) -> Iterator[tuple[Checkpoint, RunSpec]]:
    training = chosen_run(run, params)
    for checkpoint in training.checkpoints:
        yield checkpoint, run.model_copy(update={"model": spec_of(training, checkpoint)})


@lru_cache(maxsize=64)
def _geometry(model: ModelSpec) -> Geometry:
    """Return the geometry of a run's model, the same at all checkpoints."""
    return catalog.locate(model.name).geometry


def _of_steps(training: TrainingRun, results: Mapping[str, Result]) -> dict[str, np.ndarray]:
    """Return for every step the tokens read by then, and the earlier step with equal weights."""
    steps = {checkpoint.revision: float(checkpoint.step) for checkpoint in training.checkpoints}
    equal = _equal_weights(training, results)
    tokens = [
        np.nan if checkpoint.tokens is None else checkpoint.tokens
        for checkpoint in training.checkpoints
    ]
    return {
        "tokens": np.array(tokens, dtype=float),
        "equal_to": np.array([steps.get(equal.get(name, ""), np.nan) for name in steps]),
    }


def _equal_weights(training: TrainingRun, results: Mapping[str, Result]) -> dict[str, str]:
    """Map each checkpoint that repeats the weights of an earlier one to the earlier revision."""
    if training.local:
        return dict(first_of_equals(training))
    firsts = {name: result.provenance.get("weights_of") for name, result in results.items()}
    return {name: first for name, first in firsts.items() if first}


def _provenance(
    training: TrainingRun, results: Mapping[str, Result], run: RunSpec, question: Question[Any]
) -> dict[str, Any]:
    names = [checkpoint.revision for checkpoint in training.checkpoints]
    several = f"{names[0]} to {names[-1]}" if len(names) > 1 else names[0]
    return results[names[-1]].provenance | {
        "model": training.model,
        "revision": several,
        "model_fingerprint": run.model.fingerprint,
        "checkpoints": names,
        "equal_weights": _equal_weights(training, results),
        **errors_together(
            {"errors": question.error_counts} | result.provenance for result in results.values()
        ),
    }


def emergence(
    steps: Int[np.ndarray, " step"], measure: Float[np.ndarray, "step ..."]
) -> dict[str, Float[np.ndarray, "..."]]:
    """Return the step from which a measure stays above half of its final value, and its interval.

    They are ``emergence``, and ``emergence_earliest`` and ``emergence_latest``. ``steps`` ascend.
    Between the last checkpoint that is not above half and the next one, the crossing is
    interpolated linearly in the logarithm of the step. Where the first of the two is step 0, which
    has no logarithm, or where all checkpoints are above half, the result is the earliest checkpoint
    that is above, and the interval begins at 0. The sign of a measure that ends below 0 is flipped.
    NaN is not above. If a measure is above half at all checkpoints, and is further from 0 at the
    first than at the last, it fell: it did not emerge (NaN), nor did one that ends at 0 or NaN.
    """
    final = measure[-1]
    share = np.divide(measure, final, out=np.full(measure.shape, np.nan), where=final != 0)
    above = share > 0.5
    stays = np.flip(np.logical_and.accumulate(np.flip(above, axis=0), axis=0), axis=0)
    first = len(steps) - stays.sum(axis=0)
    fell = (first == 0) & (share[0] > 1)
    first = np.where(np.isfinite(final) & (final != 0) & ~fell, first, len(steps))
    crossing, earliest, latest = (np.full(final.shape, np.nan) for _ in range(3))
    for head in np.argwhere(first < len(steps)):
        place, at = int(first[tuple(head)]), tuple(head)
        after = float(steps[place])
        before = float(steps[place - 1]) if place else 0.0
        earliest[at], latest[at], crossing[at] = before, after, after
        low = share[(place - 1, *at)] if place else np.nan
        if before > 0 and np.isfinite(low):
            way = (0.5 - low) / (share[(place, *at)] - low)
            crossing[at] = before * (after / before) ** way
    return {
        "emergence": crossing,
        "emergence_earliest": earliest,
        "emergence_latest": latest,
    }


def label_counts(codes: Int[np.ndarray, "step ..."], labels: int) -> Int[np.ndarray, "step label"]:
    """Count the heads with each label at every checkpoint; negative codes mean no label."""
    flat = codes.reshape(len(codes), -1)
    return (flat[:, :, None] == np.arange(labels)).sum(axis=1)
