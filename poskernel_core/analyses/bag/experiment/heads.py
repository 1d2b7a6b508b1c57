"""Select the heads of layer 0 that fill the bag: those named, or else the contextual ones."""

from poskernel_core.analyses.bag.experiment.bag import fingerprint
from poskernel_core.analyses.bag.params import BagParams
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.contextual_heads.behaviour import BEHAVIOURS, Thresholds, behaviour
from poskernel_core.analyses.contextual_heads.experiment.contents import (
    destination_windows,
    last_rows,
    token_id,
)
from poskernel_core.analyses.contextual_heads.experiment.contextual import LayerRows
from poskernel_core.analyses.contextual_heads.experiment.duplicates import duplicates
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import first_in_equal_groups
from poskernel_core.common.specs import DEFAULT_SKIP
from poskernel_core.common.views import StatisticsView
from poskernel_core.data.moves import parse_cells

SAMPLES = 32


def chosen_heads(
    subject: ExperimentContext, main: StatisticsView, params: BagParams
) -> tuple[int, ...]:
    """Return the numbers of the heads, ascending.

    Raises:
        BadRequest: a head of another layer, or none found.
    """
    geometry = subject.model.geometry
    if params.heads.strip():
        cells = parse_cells(params.heads, geometry.n_layers, geometry.n_heads)
        if any(layer for layer, _ in cells):
            raise BadRequest(f"Expected heads of layer 0, got {params.heads!r}.")
        return tuple(sorted({head for _, head in cells}))
    token_id(subject, params.token)  # refuses a bad token before anything is computed
    key = (params.token, params.query, params.first_windows, fingerprint(subject, main))
    found: tuple[int, ...] = subject.model.remember(
        "contextual", key, lambda: _contextual(subject, main, params)
    )
    if not found:
        raise BadRequest(
            "No head of layer 0 is contextual by the usual thresholds (ETC 30 tokens or more, "
            "CV of the denominator 0.25 or less): name some, such as L0H0, L0H2."
        )
    return found


def _contextual(
    subject: ExperimentContext, main: StatisticsView, params: BagParams
) -> tuple[int, ...]:
    texts = first_in_equal_groups(subject.windows, params.first_windows)
    rows = LayerRows(subject.model.geometry.n_heads, len(texts))
    windows = destination_windows(texts, params.query, token_id(subject, params.token))
    skip = min(DEFAULT_SKIP, params.query - 1)
    for some, seen in last_rows(subject, main, windows, skip, (0,)):
        rows.add(seen[0], some)
    copies = duplicates(subject, params.query, SAMPLES, lambda _: None, last=0)
    values = rows.values()[0] | {name: mean[0] for name, (mean, _) in copies.items()}
    group = behaviour(values, Thresholds())
    return tuple(int(head) for head in (group == BEHAVIOURS.index("contextual")).nonzero()[0])
