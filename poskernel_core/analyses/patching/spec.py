"""Between two prompts: what of their difference a head's output, pattern or values carry."""

from typing import Final, Literal, TypeVar

from pydantic import Field

from poskernel_core.analyses.base import OWN_WINDOWS, Experiment, Params
from poskernel_core.analyses.sources import TextParams, text_run
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import outputs
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS, RunSpec

PARTS = ("output", "pattern", "values")
"""What of a head is put into the other run."""

SHARE = "share of the difference"
"""The unit of effects."""

INTO_CHANGED: Final = "clean-into-changed"


class PatchParams(Params):
    """The two prompts, what is read of the prediction, and what is put where."""

    clean: str = Field(
        min_length=1, max_length=MAX_TEXT_CHARACTERS, description="the clean prompt, as typed"
    )
    changed: str = Field(
        min_length=1,
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


class PatchPositionsParams(PatchParams):
    """Parameters of patching at one position."""

    head: str = Field(
        min_length=1, max_length=16, description="head such as L0H3, or a layer such as L0"
    )


P = TypeVar("P", bound=PatchParams)


class _Patch(Experiment[P]):
    """What both questions share: the run of the clean prompt."""

    uses = ("predictions",)
    params: type[P]
    ignores = Experiment.ignores | OWN_WINDOWS | {"corpus", "seed"}

    def with_params(self, run: RunSpec, params: P) -> RunSpec:
        if not params.clean.strip() or not params.changed.strip():
            raise BadRequest(
                "Expected two prompts, a clean and a changed one, but one of them is empty: type "
                "both."
            )
        whole = text_run(run, TextParams(text=params.clean), whole=True)
        return whole.model_copy(update={"positions": (0,)})


METRICS = outputs("clean_metric changed_metric, nats: the metric of the two prompts as they are")
TEXTS = outputs("""
    changed_tokens [pos], token: the tokens of the changed prompt
    answers [answer], token: the answers that the metric is of; none for the loss
""")


class PatchHeads(_Patch[PatchParams]):
    r"""What of the difference between two prompts each head carries, one head at a time.

    Formula: with a metric $m$, of the prompt that is run ($m_\text{run}$), of the other one
    ($m_\text{other}$), and of the run with a head's output replaced by that in the other prompt,
    at all positions ($m_\text{patched}$), the **effect** is $(m_\text{patched} - m_\text{run}) /
    (m_\text{other} - m_\text{run})$: 0 if nothing happens, 1 if the metric becomes the other
    prompt's. The **attribution** is its first-order estimate $\langle g, \delta z\rangle /
    (m_\text{other} - m_\text{run})$, with the change $\delta z$ of the head's output and the
    gradient $g$ of the metric by that output.

    Choices: the metric is the logit of the clean prompt's answer less that of the changed prompt's,
    at the last position; without answers, each prompt's own likeliest next token. Or it is
    the log probability of the clean prompt's answer, or the mean loss of the clean prompt's
    tokens, after either prompt. In place of the whole output, only the **pattern** of the other
    prompt is used, with the values of the prompt that is run: where the head looks; or only the
    **values** of the other prompt, with the own pattern: what it finds there. Heads that share keys
    get values of their own. The two directions need not agree. Runs begin at the head's layer.

    Limits: one pair of prompts has no error: another pair may give other heads. Effects of heads do
    not add up, as later heads take over, or undo, what earlier ones do. The prompts must have
    equally many tokens, and metrics 0.1 nats or more apart.

    Source: "Interpretability in the Wild: a Circuit for Indirect Object Identification in GPT-2
    small" (2211.00593); attribution as in "AtP*" (2403.00745) and "Attribution Patching
    Outperforms Automated Circuit Discovery" (2310.10348).
    """

    name = "patch-heads"
    title = "Heads between two prompts"
    noun_phrase = "what of the difference between the prompts each head carries"
    values = (
        *outputs("""
            effect [layer head], share of the difference: what the head carries, exactly
            attribution [layer head], share of the difference: its first-order estimate, by one
                gradient
        """),
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
    positions: of the output, of the pattern alone, and of the values alone.

    Limits: one pair of prompts has no error. Effects of positions do not add up to that of all
    positions.

    Source: as ``patch-heads``; "Locating and Editing Factual Associations in GPT" (2202.05262) for
    single positions.
    """

    name = "patch-positions"
    title = "One head between two prompts, by position"
    noun_phrase = "what this head carries at each position"
    values = (
        *outputs("""
            effect [pos], share of the difference: what is carried at the position, exactly
            attribution [pos], share of the difference: its first-order estimate, by one gradient
            part_effect [part], share of the difference: what is carried at all positions, by each
                part
        """),
        *METRICS,
    )
    texts = (*TEXTS, *outputs("part [part]", "name", "what of the head is put into the other run"))
    runs = "patch_positions"
