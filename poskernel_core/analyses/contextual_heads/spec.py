"""Contextual heads: broad kernels whose softmax denominator hardly depends on the context."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import Experiment, Params, SkipParams, TokenParams
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result, outputs, sizes
from poskernel_core.common.specs import RunSpec

P = TypeVar("P", bound=TokenParams)


BEHAVIOURS = ("duplicate token", "local kernel", "contextual", "other")
"""The groups, in the order of the tests: a head belongs to the first group that fits.

Heads of layer 0 with a local kernel are called *detokenization* heads in the source: they join the
pieces of a word.
"""


class Thresholds(Params):
    """Thresholds of the groups."""

    duplicates: float = Field(
        0.3,
        ge=0,
        le=1,
        description="attention to a duplicate from which a head is a duplicate-token head",
    )
    local: float = Field(
        0.5,
        ge=0,
        le=1,
        description="mass in the last 10 tokens from which a kernel is local",
    )
    broad: float = Field(
        30, ge=1, le=1_000_000, description="ETC from which a kernel is broad, tokens"
    )
    steady: float = Field(
        0.25, ge=0, le=100, description="CV of the softmax denominator that is still low"
    )


def behaviour(values: dict[str, np.ndarray], limits: Thresholds) -> np.ndarray:
    """Return the group of every head as an index into :data:`BEHAVIOURS`.

    ``values`` are those of ``contextual-heads``. For duplicates, the larger of near and far counts.
    """
    duplicates = np.fmax(values["near_duplicates"], values["far_duplicates"])
    tests = [
        duplicates >= limits.duplicates,
        values["local_mass"] >= limits.local,
        (values["etc"] >= limits.broad) & (values["denominator_cv"] <= limits.steady),
    ]
    return np.select(tests, range(len(tests)), default=len(tests))


def regrouped(heads: Result, **limits: Any) -> Result:
    """Return a result of contextual heads, regrouped with other thresholds.

    ``limits`` are fields of :class:`Thresholds`.
    """
    group = behaviour(heads.values, Thresholds(**limits))
    return replace(heads, values={**heads.values, "group": group}, params=heads.params | limits)


class DestinationExperiment(Experiment[P]):
    """A question about one destination token; it uses the run's mean keys."""

    ignores = Experiment.ignores | {"positions"}
    gathers = ("keys",)

    def with_params(self, run: RunSpec, params: P) -> RunSpec:
        given = params.model_dump()
        query, skip = given["query"], given.get("skip", 0)
        if not skip < query < run.context:
            after = f"{skip + 1} (after the skipped keys)" if skip else "1"
            raise BadRequest(f"Expected a position from {after} to {run.context - 1}, got {query}.")
        return run


class ContextualParams(SkipParams, TokenParams, Thresholds):
    """Parameters of the search for contextual heads."""

    query: int = Field(ge=1, description="position of the destination token")
    first_windows: int = Field(
        64, ge=2, le=10_000, description="first windows of text, which the token is put into"
    )
    samples: int = Field(
        32, ge=2, le=10_000, description="random sequences with duplicates of their last tokens"
    )


class ContextualHeads(DestinationExperiment[ContextualParams]):
    r"""The softmax denominator of a fixed token in many windows, for every head.

    The fixed token replaces the token at position $n$ of each window.

    Formula: $Z_n = \sum_j K(n,j)\, w(n,j)$ with content weights $w(n,i) = e^{c(n,i)}$,
    $c(n,i) = \text{scale}\; q_n \cdot (k_i - m_i)$. If content is independent within a window,
    $\mathrm{Var}[Z_n] = \mathrm{Var}[w] \sum_i K(n,i)^2 = \mathrm{Var}[w] / \mathrm{ETC}(n)$.

    Choices: the first ``skip`` keys are left out of kernel and denominator. Mean and variance of
    the content weights count every key equally. The ETC in the prediction is that of each window's
    own kernel, which in layer 0 is the same for all windows. Duplicates are 2, 4, 8, ... tokens
    back, all of them in one sequence of $n + 1$ random tokens: the first is seen from $n$, the
    second from $n - 3$, the next from $n - 6$ and so on. A head is a duplicate-token head if
    ``near_duplicates`` or ``far_duplicates`` reaches 0.3; else its kernel is local if half of its
    mass is in the last 10 tokens (detokenization, in the source); else it is contextual if its ETC
    is 30 tokens or more and its ``denominator_cv`` 0.25 or less. All thresholds can be changed.

    Limits: exponentials have heavy tails: where a few keys carry the denominator, its variation
    over 60 windows is itself uncertain. Errors come from leaving out one group of texts at a time,
    from the windows and from the mean keys; errors of duplicates are over random sequences. The
    behaviour groups are made for layer 0; in later layers a head with a local kernel need not join
    words together.

    Source: "Contextual attention heads in the first layer of GPT-2" and "Positional kernels of
    attention heads"; thresholds and the measure of duplicate attention are ours.
    """

    name = "contextual-heads"
    title = "Contextual heads"
    noun_phrase = "which heads are contextual"
    error_counts = "windows and, of duplicates, sequences of random tokens"
    values = (
        *outputs("""
            etc [layer head], tokens: effective token count (ETC) of the token's mean kernel
            local_mass [layer head], share of mass: its mass in the last 10 tokens
            ± denominator [layer head], weight: mean of $Z_n$ over windows
        """),
        *sizes("""
            denominator_cv [layer head], relative to the mean: coefficient of variation of $Z_n$
                over windows: standard deviation over mean
        """),
        *outputs("""
            predicted_cv [layer head], relative to the mean: the ``denominator_cv`` that independent
                content would give
            weight_mean [layer head], weight: mean of the content weights over windows and keys
            weight_variance [layer head], weight squared: variance of the content weights over
                windows and keys
            % duplicate_attention baseline [layer head distance], share of attention: attention to
                an earlier duplicate of the current token at that distance back, and to another
                token in the same place
            ± near_duplicates far_duplicates [layer head], share of attention: mean of the attention
                to a duplicate less ``baseline``, up to 10 tokens back and beyond
        """),
        *outputs(
            "group [layer head], group: behaviour group: duplicate token, local kernel, "
            "contextual, other",
            labels=BEHAVIOURS,
        ),
        *outputs("visible_keys [layer head], tokens: number of keys that count"),
    )
    measures = grid_measures("""
        CV of the softmax denominator [denominator_cv, log], relative to the mean (log scale): Dark:
            the denominator hardly depends on the context (CV: coefficient of variation).
        behaviour group [group, labels], group: By kernel, CV of the softmax denominator and
            attention to duplicates.
        attention to far duplicates [far_duplicates, diverging], share of attention: Bright: the
            head attends to earlier duplicates of the current token.
    """)
    precomputed = "experiments"
    long = True
    runs = "contextual:contextual_heads"
