"""Run windows of text with positions averaged in groups of increasing size."""

import numpy as np

from poskernel_core.analyses.base import ExperimentContext, Progress, Statistics
from poskernel_core.analyses.helix.formulas import GROUP_SIZES
from poskernel_core.analyses.interventions.averaging import Averaging, AveragingParams
from poskernel_core.analyses.interventions.experiment.intervene import averaging_edit
from poskernel_core.common.result import Result
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.readout import measure
from poskernel_core.statistics.moments import means_of


def average(
    subject: ExperimentContext, statistics: Statistics, params: AveragingParams, progress: Progress
) -> Result:
    """Run every window with every group size; see :class:`~poskernel_core.analyses.Averaging`."""
    sizes = (1, *GROUP_SIZES)
    edits = [averaging_edit(subject, statistics, params, size) for size in sizes]
    texts = len(subject.windows)
    rows: list[list[tuple[float, np.ndarray]]] = []
    for text in range(texts):
        rows.append([])
        for place, edit in enumerate(edits):
            progress(text * len(sizes) + place, texts * len(sizes))
            rows[-1].append(_one(subject, text, edit))
    # [text, group] and [text, group, layer, head]
    loss, masses = (np.array([[one[part] for one in row] for row in rows]) for part in (0, 1))
    each = {"loss": loss, "loss_change": loss - loss[:, :1], "previous_mass": masses}
    coordinates = {"group": np.array(sizes)}
    return Averaging.estimated(subject, params, *means_of(each), coordinates=coordinates)


def _one(subject: ExperimentContext, text: int, edit: Edit) -> tuple[float, np.ndarray]:
    """Return the mean loss of a window, and attention to the predecessor ``[layer, head]``."""
    window = subject.windows[text : text + 1]
    found = measure(subject.model, window, edit, start_token=subject.start_token)
    return float(np.nanmean(found.loss)), found.previous_mass
