"""Heads ablated on many texts: the loss by position, and induction."""

from typing import Literal

from pydantic import Field

from poskernel_core.analyses.kernel_only.spec import KernelOnly, KernelOnlyParams
from poskernel_core.common.result import estimates
from poskernel_core.common.specs import RunSpec


class AblateHeadsParams(KernelOnlyParams):
    """Parameters of heads ablated on many texts."""

    heads: str = Field(min_length=1, max_length=8000, description="heads such as 'L0H1, L2H3'")
    by: Literal["mean", "zero", "resample", "kernel"] = Field(
        "mean",
        description="what takes their place: the mean output, zero, another text's output, or "
        "attention by the kernel alone",
    )
    samples: int = Field(100, ge=2, le=100_000, description="random sequences for induction")


class AblateHeads(KernelOnly[AblateHeadsParams]):
    r"""What the model loses on many texts, and on repeated random tokens, if heads are ablated.

    Formula: with $\ell_n = -\log p(t_n \mid t_{<n})$, the change is
    $\mathbb{E}[\ell_n^\text{ablated} - \ell_n^\text{clean}]$ over texts, and its mean over
    positions; the same on sequences of random tokens repeated once, with the change of every head's
    induction score.

    Choices: all heads are ablated at once. Their outputs become the mean over texts and positions,
    zero, or, position by position, those of the clean run of another text (another sequence); or
    each attends by its positional kernel alone, with the text's own values, as for
    ``kernel-only-cost``. Kernels and means are of other texts than the loss, also where tokens are
    random. Clean and ablated runs are paired. All heads may be named: then attention carries
    nothing (mean, zero), nothing of this text, or only what position decides.

    Limits: zero and means are outputs that later layers have never seen; another text's are, but
    tell of that text. What other heads take over is not seen. A head that attends by its kernel has
    no other induction score than that.

    Source: ablation by means and resampling as in "Interpretability in the Wild" (2211.00593) and
    causal scrubbing; induction scores as in ``induction-scores``.
    """

    name = "ablate-heads"
    title = "Heads ablated on many texts"
    noun_phrase = "what the model loses if these heads are ablated"
    precomputed = "shipped"
    values = (
        *estimates("""
            loss_change, nats: rise of the loss, per token
            position_loss_change [pos], nats: rise at each position; NaN at the first
            clean_position_loss [pos], nats: the loss as it is, at each position
        """),
        *KernelOnly.clean,
        *estimates("""
            copy_loss_change [copy], nats: rise of the loss of random tokens, and of the same tokens
                repeated
            induction_change [layer head], share of attention: change of the induction score
            % induction [layer head], share of attention: the score as it is
        """),
    )
    runs = "ablate_heads"

    def tokens(self, run: RunSpec, params: AblateHeadsParams) -> int:
        windows = 2 * params.kernel_windows + 3 * params.loss_windows + 3 * params.samples
        return run.context * windows
