"""Longer contexts: what changes in kernels and loss beyond the trained length."""

from pydantic import Field

from poskernel_core.analyses.base import OWN_WINDOWS, Experiment, SkipParams
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import GROUPS
from poskernel_core.common.result import distances, estimates, outputs
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import RunSpec

FACTORS = (1, 2, 4)
PARTS = 8
"""Parts of each length over which the loss is averaged."""

AFFORDABLE = 512
"""Largest default length, in tokens: a processor reads four times as many in minutes."""


class LongerContextsParams(SkipParams):
    """Parameters of the longer contexts."""

    length: int | None = Field(
        None,
        ge=12,
        le=16_384,
        description=f"tokens of the shortest context; default: the run's context, up to "
        f"{AFFORDABLE}",
    )
    texts: int = Field(GROUPS, ge=GROUPS, le=1000, description="long texts")


class LongerContexts(Experiment[LongerContextsParams]):
    r"""Kernels and loss in contexts of 1, 2 and 4 times a length, with scaled rotary angles.

    Formula: $K_f(k)$ is the positional kernel at offset $k$ in a context of $f$ times ``length``,
    over the offsets that every context sees, and $\mathrm{TV}(K_f, K_1) = \tfrac12 \sum_k |K_f(k) -
    K_1(k)|$. Angles of pair $r$ are the model's own, $\theta_r p$; with linear scaling
    $\theta_r p / f$; with YaRN between the two, by how often the pair turns in ``length`` tokens,
    and scores are multiplied by $(0.1 \ln f + 1)^2$.

    Choices: all contexts end with the same tokens; a shorter one is the start token and the end of
    the longest. So queries, near keys and targets are the same tokens, and differences come from
    position and from the longer context. Kernels are means over queries in the last quarter of
    ``length``, 8 of each text, with the mean keys of the context. Only offsets up to three quarters
    of ``length`` count, without the first ``skip`` keys of the shortest context, renormalised.
    ``loss_change`` is over the last quarter of ``length``. By default ``length`` is the context of
    the run, up to 512. Where it is less than the length that the model was trained for, even the
    longest context may be one that the model was made for. Angles are changed for one pass only;
    the model stays as it is.

    Limits: few texts make mean keys noisy. With the model's own angles the noise is nearly the same
    in all contexts, because near keys are the same tokens; with scaled angles it is not, and
    distances come out too large: the bias estimates by how much. Models are often trained on after
    scaling; here they are not. Learned positions end at the trained length, so these models are
    refused. YaRN is left out where a model's own angles are scaled already.

    Source: linear scaling as in "Extending context window of large language models via positional
    interpolation" (2306.15595), YaRN as in "YaRN: efficient context window extension of large
    language models" (2309.00071) and computed by transformers; the comparison of kernels is ours.
    """

    name = "longer-contexts"
    title = "Longer contexts"
    noun_phrase = "kernels and loss in longer contexts"
    error_counts = "texts"
    uses = ("predictions",)
    scheme = "rotary ALiBi no"
    values = (
        *distances(
            "distance [layer head scaling factor]",
            "TV of the kernel to that at ``length``, aligned by offset; 0 at factor 1",
        ),
        *distances(
            "longest_distance [layer head]",
            "the same in the longest context, with the model's own angles",
        ),
        *estimates("""
            kernel [layer head scaling factor offset], share of attention: $K_f(k)$ at some offsets,
                the mean kernel over those that all contexts see
            loss [scaling factor position], nats: mean loss of an eighth of ``length``, up to each
                position
            loss_change [scaling factor], nats: loss on the last tokens, the same in all contexts,
                minus that at ``length``
        """),
    )
    texts = outputs("scaling [scaling], name: the angles: the model's own, linear, YaRN")
    precomputed = "experiments"
    measures = grid_measures("""
        kernel change in longer contexts [longest_distance, unit], total variation (0: alike): Dark:
            the kernel is the same in the longest context as at the length that the model was
            trained for.
    """)
    ignores = Experiment.ignores | OWN_WINDOWS
    long = True
    runs = "longer_contexts"

    def with_params(self, run: RunSpec, params: LongerContextsParams) -> RunSpec:
        length = params.length or min(run.context, AFFORDABLE)
        if params.skip > length // 4:
            raise BadRequest(
                f"Expected to skip at most a quarter of {counted(length, 'token')}, got "
                f"{params.skip}: skip fewer, or choose a larger length."
            )
        windows = FACTORS[-1] * params.texts
        changed = {"context": length, "windows": windows, "positions": (0,)}
        return run.model_copy(update=changed)

    def tokens(self, run: RunSpec, params: LongerContextsParams) -> int:
        scaled = 3 * sum(FACTORS[1:])
        return params.texts * run.context * (FACTORS[0] + scaled)
