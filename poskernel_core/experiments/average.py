"""Windows of text with positions averaged in groups of growing size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.analyses.positions import GROUPS
from poskernel_core.edits import Edit
from poskernel_core.experiments.intervene import averaging_edit
from poskernel_core.experiments.measures import measure
from poskernel_core.views import StatisticsView

if TYPE_CHECKING:
    from poskernel_core.analyses.averaging import AveragingParams

__all__ = ["average"]


def average(
    subject: Subject,
    statistics: Mapping[str, StatisticsView],
    params: AveragingParams,
    progress: Progress,
) -> Result:
    """Run every window with every group size; see :class:`~poskernel_core.analyses.Averaging`.

    Raises:
        BadRequest: positions that are not learned, or no such layer.
    """
    sizes = (1, *GROUPS)
    edits = [averaging_edit(subject, statistics, params.layer, size) for size in sizes]
    windows = len(subject.windows)
    loss = np.zeros((len(sizes), windows))
    mass: list[list[np.ndarray]] = [[] for _ in sizes]
    for text in range(windows):
        for place, edit in enumerate(edits):
            progress(text * len(sizes) + place, windows * len(sizes))
            loss[place, text], previous = _one(subject, text, edit)
            mass[place].append(previous)
    masses = np.array(mass)
    change = loss - loss[:1]
    scale = np.sqrt(windows)
    return Result(
        analysis="averaging",
        params=params.model_dump(),
        values={
            "loss": loss.mean(axis=1),
            "loss_change": change.mean(axis=1),
            "previous_mass": masses.mean(axis=1),
        },
        axes={
            "loss": ("group",),
            "loss_change": ("group",),
            "previous_mass": ("group", "layer", "head"),
        },
        units={"loss": "nats", "loss_change": "nats", "previous_mass": "share of attention"},
        errors={
            "loss": loss.std(axis=1, ddof=1) / scale,
            "loss_change": change.std(axis=1, ddof=1) / scale,
            "previous_mass": masses.std(axis=1, ddof=1) / scale,
        },
        coordinates={"group": np.array(sizes)},
    )


def _one(subject: Subject, text: int, edit: Edit) -> tuple[float, np.ndarray]:
    window = subject.windows[text : text + 1]
    found = measure(subject.model, window, edit, start_token=subject.start_token)
    return float(np.nanmean(found.loss)), found.previous_mass
