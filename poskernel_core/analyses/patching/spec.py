"""Between two prompts: what of their difference a head's output, pattern or values carry."""

from typing import Any, Final, Literal, TypeVar

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import OWN_WINDOWS, Experiment
from poskernel_core.analyses.patching.pairs import MADE, PairsParams
from poskernel_core.analyses.sources import TextParams, text_run
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import BESIDE, Result, estimates, outputs
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS, CorpusSpec, RunSpec
from poskernel_core.data.made import RANDOM
from poskernel_core.models.catalog import find_again

PARTS = ("output", "pattern", "values")
"""What of a head is put into the other run."""

SHARE = "share of the difference"
"""The unit of effects."""

INTO_CHANGED: Final = "clean-into-changed"
COUNTS = 0.05
"""Smallest share of the difference between two prompts that counts."""
CLEAR = 0.5
"""Smallest difference of the prompts' metrics, in nats, of which shares are told."""
LARGEST = 10
"""Heads whose effect over a set is exact, those with the largest estimates."""


class PatchParams(PairsParams):
    """The two prompts, or a set of pairs, what is read of the prediction, and what is put where."""

    clean: str = Field("", max_length=MAX_TEXT_CHARACTERS, description="the clean prompt, as typed")
    changed: str = Field(
        "",
        max_length=MAX_TEXT_CHARACTERS,
        description="the changed prompt, of as many tokens",
    )
    metric: Literal["difference", "log-probability", "loss"] = Field(
        "difference",
        description="difference of two answers' logits after the prompt, log probability of one "
        "answer, or mean loss of the clean prompt's tokens",
    )
    answer: str = Field(
        "",
        max_length=64,
        description="the clean prompt's answer, one token, tried with a space before it (default: "
        "likeliest)",
    )
    other_answer: str = Field(
        "",
        max_length=64,
        description="difference: the changed prompt's answer, likewise (default: likeliest)",
    )
    what: Literal["output", "pattern", "values"] = Field(
        "output", description="what is put into the other run: a head's output, or only its pattern"
        ", or only its values"
    )  # fmt: skip
    direction: Literal["clean-into-changed", "changed-into-clean"] = Field(
        INTO_CHANGED, description="the prompt that it comes from, and the one that is run"
    )


class PatchHeadsParams(PatchParams):
    """Parameters of patching all heads."""

    exact: Literal["largest", "all"] = Field(
        "largest",
        description=f"a set: heads whose effect is exact: the {LARGEST} with the largest "
        "estimates, or all",
        exclude_if=lambda exact: exact == "largest",  # so that keys of a single pair stay
    )


class PatchPositionsParams(PatchParams):
    """Parameters of patching at one position."""

    head: str = Field(
        min_length=1, max_length=16, description="head such as L0H3, or a layer such as L0"
    )


P = TypeVar("P", bound=PatchParams)
Q = TypeVar("Q", bound=PairsParams)


def of_clear(result: Result, shares: set[str]) -> Result:
    """Blank out shares of a difference whose interval does not lie above 0.5 nats."""
    low = result.lows.get("difference")
    if low is not None and low <= CLEAR:  # NaN: there is one group
        for arrays in (getattr(result, part) for part in ("values", *BESIDE)):
            arrays |= {name: np.nan * array for name, array in arrays.items() if name in shares}
    return result


class OfPairs(Experiment[Q]):
    """What questions about sets of pairs share."""

    uses = ("predictions",)
    params: type[Q]
    error_counts = "pairs of prompts"
    ignores = Experiment.ignores | OWN_WINDOWS

    def completed(self, run: RunSpec, params: Q) -> Q:
        """Return the parameters without those that the kind of set does not use."""
        unused = {"pairs": "", "skip_bad": False} if params.maker else {"count": MADE}
        return params.model_copy(update=unused)

    def smaller(self, run: RunSpec, params: Q, tokens: int) -> tuple[str, str]:
        fit = params.rows * tokens // self.tokens(run, params)
        return "pairs times runs times length", f"choose up to {fit:,} of {params.rows:,} pairs"


class _Patch(OfPairs[P]):
    """What both questions share: the run of the clean prompt, or a set of pairs."""

    ignores = OfPairs.ignores | {"corpus", "seed"}

    def completed(self, run: RunSpec, params: P) -> P:
        """Return the parameters without those that a set, or a single pair, does not use."""
        unused: dict[str, Any] = {"clean": "", "changed": "", "answer": "", "other_answer": ""}
        if params.of_set:
            params = super().completed(run, params)
        else:
            unused = {"count": MADE, "skip_bad": False, "exact": "largest"}
        known = type(params).model_fields
        return params.model_copy(update={n: value for n, value in unused.items() if n in known})

    def canonical(self, run: RunSpec, params: P) -> RunSpec:
        made = super().canonical(run, params)
        return made.model_copy(update={"seed": run.seed}) if params.maker else made

    def with_params(self, run: RunSpec, params: P) -> RunSpec:
        if params.of_set:
            if params.metric == "loss":
                raise BadRequest(
                    "A set of pairs is judged at the end of its prompts, not by their loss: "
                    "choose the difference of two answers, or the log probability of one."
                )
            return run.model_copy(update={"corpus": CorpusSpec(name=RANDOM), "positions": (0,)})
        if not params.clean.strip() or not params.changed.strip():
            raise BadRequest(
                "Expected two prompts, a clean and a changed one, but one of them is empty: type "
                "both, or give a set of pairs."
            )
        clean_run = text_run(run, TextParams(text=params.clean), whole=True)
        return clean_run.model_copy(update={"positions": (0,)})

    def reads(self, run: RunSpec, params: P) -> RunSpec:
        """Return the run of the clean prompt; of a set, two windows with the start token alone."""
        return run.model_copy(update={"context": 1, "windows": 2}) if params.of_set else run

    def tokens(self, run: RunSpec, params: P) -> int:
        """Return the tokens of all runs of a set: pairs times heads, or places, times length."""
        if not params.of_set:
            return super().tokens(run, params)
        geometry, runs = find_again(run.model).geometry, LARGEST
        if getattr(params, "exact", "") == "all":
            runs = len(geometry.with_heads) * geometry.n_heads
        return (runs + 4) * params.prompt_tokens // 2

    def smaller(self, run: RunSpec, params: P, tokens: int) -> tuple[str, str]:
        if not params.of_set:
            return Experiment.smaller(self, run, params, tokens)
        return super().smaller(run, params, tokens)

    @classmethod
    def derived(cls, result: Result) -> Result:
        """Blank out shares over a set where what they are shares of is not clear."""
        return of_clear(result, {value.name for value in cls.values if value.unit == SHARE})


METRICS = (
    *estimates(
        """
        clean_metric changed_metric, nats: the metric of the two prompts as they are; its mean
        """,
        kind="plain",
    ),
    *estimates(
        """
        difference, nats: how much higher it is for the clean prompts, in the mean: what shares
            are of
        """,
        kind="plain",
        optional=True,
    ),
    *outputs(
        """
        pairs, pairs: those that are used
        left_out, pairs: those that are not: the metric of the clean prompt is not 0.1 nats above
            that of the changed one
        bad_rows, pairs: rows of the table that could not be used
        """,
        optional=True,
    ),
)
TEXTS = outputs(
    """
    changed_tokens [pos], token: the tokens of the changed prompt
    answers [answer], token: the answers that the metric is of; none for the loss
    """,
    optional=True,
)


class PatchHeads(_Patch[PatchHeadsParams]):
    r"""What of the difference between two prompts each head carries, one head at a time.

    Formula: with a metric $m$, of the prompt that is run ($m_\text{run}$), of the other one
    ($m_\text{other}$), and of the run with a head's output replaced by that in the other prompt,
    at all positions ($m_\text{patched}$), the **effect** is $(m_\text{patched} - m_\text{run}) /
    (m_\text{other} - m_\text{run})$: 0 if nothing happens, 1 if the metric becomes the other
    prompt's. The **attribution** is its first-order estimate $\langle g, \delta z\rangle /
    (m_\text{other} - m_\text{run})$, with the change $\delta z$ of the head's output and the
    gradient $g$ of the metric by that output. Over a **set** of pairs, both are ratios of sums:
    $\sum_p (m_\text{patched} - m_\text{run}) / \sum_p (m_\text{other} - m_\text{run})$, with errors
    over ten groups of pairs; all pairs of one template are in one group.

    Choices: the metric is the logit of the clean prompt's answer less that of the changed prompt's,
    at the last position; without answers, each prompt's own likeliest next token. Or it is
    the log probability of the clean prompt's answer, or the mean loss of the clean prompt's
    tokens, after either prompt. In place of the whole output, only the **pattern** of the other
    prompt is used, with the values of the prompt that is run: where the head looks; or only the
    **values** of the other prompt, with the own pattern: what it finds there. Heads that share keys
    get values of their own. The two directions need not agree. Runs begin at the head's layer.
    Sums over a set run over pairs whose clean prompt has a metric 0.1 nats or more above that of
    the changed one. Effects are exact for the heads with the largest estimates, or for all.

    Limits: one pair of prompts has no error: another pair may give other heads. Errors over a set
    count its pairs; another kind of pairs may give other heads. Effects of heads do not add up, as
    later heads take over, or undo, what earlier ones do. The prompts of a pair must have equally
    many tokens, and metrics 0.1 nats or more apart; shares over a set are NaN where the interval of
    ``difference`` does not lie above 0.5 nats.

    Source: "Interpretability in the Wild: a Circuit for Indirect Object Identification in GPT-2
    small" (2211.00593); attribution as in "AtP*" (2403.00745) and "Attribution Patching
    Outperforms Automated Circuit Discovery" (2310.10348).
    """

    name = "patch-heads"
    title = "Heads between two prompts"
    noun_phrase = "what of the difference between the prompts each head carries"
    values = (
        *outputs("""
            ± effect [layer head], share of the difference: what the head carries, exactly
            ± attribution [layer head], share of the difference: its first-order estimate, by one
                gradient
        """),
        *estimates(
            """
            opposite [layer head], share of pairs: those in which the exact effect is −0.05 or less,
                away from the other prompt
            """,
            kind="plain",
            bounds=(0, 1),
            optional=True,
        ),
        *outputs(
            """
            agreement, rank correlation: of exact effects with their estimates, over their heads
            """,
            optional=True,
        ),
        *METRICS,
    )
    texts = TEXTS
    long = True
    runs = "patch_heads"


class PatchPositions(_Patch[PatchPositionsParams]):
    r"""What of the difference between two prompts one head, or layer, carries, by position.

    Formula: that of ``patch-heads``, with the head's output replaced at one position only.

    Choices: output and pattern are replaced at one query, values at one key, for all queries. For a
    layer, all its heads are replaced together. ``part_effect`` is the effect at all
    positions: of the output, of the pattern alone, and of the values alone. Over a set, effects are
    by position where all pairs have one length, else by the spans that all of them name (``When
    {who: Mary} and``), and at the end; a span's tokens are replaced together.

    Limits: one pair of prompts has no error. Effects of positions do not add up to that of all
    positions.

    Source: as ``patch-heads``; "Locating and Editing Factual Associations in GPT" (2202.05262) for
    single positions.
    """

    name = "patch-positions"
    title = "One head between two prompts, by position"
    noun_phrase = "what this head carries at each position"
    values = (
        *outputs(
            """
            effect [pos], share of the difference: what is carried at the position, exactly
            attribution [pos], share of the difference: its first-order estimate, by one gradient
            """,
            optional=True,
        ),
        *outputs(
            """
            ± span_effect [span], share of the difference: over a set, what is carried at the
                position or span, exactly
            ± span_attribution [span], share of the difference: its first-order estimate
            pair_effect [pair], nats: over a set, how far the metric of each pair moves towards the
                other prompt's, at all positions
            pair_difference [pair], nats: how far it is from that
            """,
            optional=True,
        ),
        *outputs("""
            ± part_effect [part], share of the difference: what is carried at all positions, by each
                part
        """),
        *METRICS,
    )
    texts = (
        *TEXTS,
        *outputs("part [part]", "name", "what of the head is put into the other run"),
        *outputs(
            """
            span [span], name: positions or spans of a set
            pair [pair], text: the clean prompts of a set
            """,
            optional=True,
        ),
    )
    runs = "patch_positions"
