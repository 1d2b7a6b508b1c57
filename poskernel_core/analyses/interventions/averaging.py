"""How much averaging positions in groups harms a model."""

from collections.abc import Mapping

from pydantic import Field

from poskernel_core.analyses.base import OWN_WINDOWS, Experiment
from poskernel_core.analyses.interventions.spec import AveragingPlace, averaged_stream
from poskernel_core.common.result import estimates
from poskernel_core.common.specs import RunSpec


class AveragingParams(AveragingPlace):
    """Parameters of the table of losses."""

    loss_windows: int = Field(
        16, ge=2, le=1000, description="windows of text the loss is taken over"
    )


class Averaging(Experiment[AveragingParams]):
    r"""The loss with positions averaged in groups of 1 (clean), 5, 10, 20, 50 and 100.

    Formula: $\text{loss} = \mathbb{E}\,[-\log p(t_n \mid t_{<n})]$ over the windows' tokens.

    Choices: positions are averaged in ``W_pos``, or in the stream before a layer; the first
    ``keep`` positions can be exempt.

    Limits: averaging in the stream uses the extended positional embeddings $X^l$, which are
    measured on prompts of one repeated token without a start token. Errors are over groups of
    windows; errors of changes are paired.

    Source: "The positional embedding matrix and previous-token heads": with groups of 5, 10 and 20
    the output is nearly unchanged, at 50 and 100 it is worse.
    """

    name = "averaging"
    uses = ("predictions",)
    title = "Positions averaged in groups"
    noun_phrase = "the loss with positions averaged in groups"
    error_counts = "windows"
    params = AveragingParams
    values = (
        *estimates("loss [group]", "nats", "mean loss of the next token"),
        *estimates(
            "loss_change [group]",
            "nats",
            "the loss against the clean run, paired over groups of windows",
        ),
        *estimates(
            "previous_mass [group layer head]",
            "share of attention",
            "mean attention to the predecessor",
        ),
    )
    figure = "averaging_figure"
    ignores = Experiment.ignores | OWN_WINDOWS
    long = True
    runs = "average:average"

    def with_params(self, run: RunSpec, params: AveragingParams) -> RunSpec:
        """Return the run over a few windows of the corpus."""
        return run.model_copy(update={"windows": params.loss_windows, "positions": (0,)})

    def needs(self, run: RunSpec, params: AveragingParams) -> Mapping[str, RunSpec]:
        """Return the pass over repeated tokens; it is needed only to average the stream."""
        return {} if params.layer is None else averaged_stream(run)
