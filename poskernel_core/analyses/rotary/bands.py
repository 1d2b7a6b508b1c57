"""Freeze or remove bands of wavelengths inside the model, and measure the effect."""

from pydantic import Field

from poskernel_core.analyses.base import OWN_WINDOWS, Experiment
from poskernel_core.analyses.rotary.formulas import BANDS
from poskernel_core.analyses.rotary.pairs import Wavelengths
from poskernel_core.common.result import estimates
from poskernel_core.common.specs import RunSpec

TREATMENTS = ("frozen", "removed")
CHANGES = ("clean", *(f"{band} {treatment}" for treatment in TREATMENTS for band in BANDS))
"""The compared runs, in the order of the axis ``change``."""


class ChangedBandsParams(Wavelengths):
    """Parameters of the changes; without heads and layers, all heads are changed."""

    head: str = Field("L0H0", description="the head whose pattern is compared, such as L0H3")
    heads: str = Field("", max_length=4000, description="changed heads, such as 'L0H3, L1H4'")
    layers: str = Field("", max_length=200, description="layers whose heads are changed: 0-3")
    loss_windows: int = Field(8, ge=2, le=1000, description="windows of text that are read")


class ChangedBands(Experiment[ChangedBandsParams]):
    r"""Each band of wavelengths frozen, and removed, in chosen heads, compared with the clean run.

    Formula: $\text{loss} = \mathbb{E}\,[-\log p(t_n \mid t_{<n})]$ over the windows' tokens;
    previous-token mass $P(1) = \mathbb{E}\, A(n, n-1)$; distance of patterns $\mathbb{E}_n
    \tfrac12 \sum_i |A(n,i) - A'(n,i)|$.

    Choices: the pairs of a frozen band are not turned in queries and keys, so they compare content
    but not distance. The pairs of a removed band are zero, so they compare neither. Everything
    after the change is recomputed. Heads that share keys are changed one by one. Bands are those of
    the rotary spectrum.

    Limits: the model was never trained like this, so a higher loss shows that a band is used, but
    not what for. Errors are over groups of windows; errors of changes are paired.

    Source: ours; removing wavelengths follows "Round and round we go! What makes rotary positional
    encodings useful?" (2410.06205).
    """

    name = "changed-bands"
    uses = ("predictions",)
    scheme = "rotary"
    title = "Bands changed in the model"
    noun_phrase = "the effects of changed bands"
    error_counts = "windows"
    values = estimates("""
        loss [change], nats: mean loss of the next token
        loss_change [change], nats: the loss against the clean run, paired over windows
        previous_mass [change layer head], share of attention: mean attention to the predecessor
        previous_mass_change [change layer head], share of attention: the same against the clean
            run, paired over windows
        profile [change offset], share of attention: mean attention of the chosen head to the token
            so many places back, the start token's row and column left out
        % pattern_distance [change], TV distance, 0 to 1: mean over rows, between the chosen head's
            pattern and that of the clean run
    """)
    ignores = Experiment.ignores | OWN_WINDOWS
    long = True
    runs = "change_bands"

    def with_params(self, run: RunSpec, params: ChangedBandsParams) -> RunSpec:
        params.longest(run.context)
        return run.model_copy(update={"windows": params.loss_windows, "positions": (0,)})
