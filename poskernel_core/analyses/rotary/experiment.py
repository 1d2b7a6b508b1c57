"""Run windows of text with each band of wavelengths frozen or removed."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.interventions.experiment import each_window
from poskernel_core.analyses.rotary.bands import TREATMENTS, ChangedBands, ChangedBandsParams
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.data.moves import parse_cells, parse_layers
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.interventions import ChangedBand
from poskernel_core.forward.readout import Measured
from poskernel_core.statistics.moments import means_of


def change_bands(subject: ExperimentContext, params: ChangedBandsParams) -> Result:
    """Run every window clean and with every change; see :class:`ChangedBands`."""
    geometry = subject.model.geometry
    cell = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
    effects = partial(_effects, start=int(subject.start_token))
    arrays = each_window(subject, edits_of(subject, params), effects, cell)
    ordered = {value.name: arrays[value.name] for value in ChangedBands.values}
    return ChangedBands.estimated(subject, params, means_of(ordered))


def edits_of(subject: ExperimentContext, params: ChangedBandsParams) -> list[Edit]:
    """Return the edits of all runs, the clean run first."""
    sizes = subject.model.geometry.n_layers, subject.model.geometry.n_heads
    if params.heads.strip():
        cells = parse_cells(params.heads, *sizes)
    else:
        layers = parse_layers(params.layers.strip() or f"0-{sizes[0] - 1}", sizes[0])
        cells = [(layer, head) for layer in layers for head in range(sizes[1])]
    long = params.longest(subject.windows.shape[1])
    ends = (0.0, params.short, long, math.inf)
    bands = list(pairwise(ends))
    changes = [
        ChangedBand(cells, *band, "frozen" if treatment == "frozen" else "removed")
        for treatment in TREATMENTS
        for band in bands
    ]
    return [Edit(), *changes]


def _effects(measurement: Measured, clean: Measured, start: int) -> dict[str, np.ndarray]:
    pattern = measurement.pattern.astype(np.float64)
    apart = np.abs(pattern - clean.pattern).sum(axis=-1)
    return {
        "loss": np.array(np.nanmean(measurement.loss)),
        "previous_mass": measurement.previous_mass,
        "profile": _profile(pattern[start:, start:], len(pattern)),
        "pattern_distance": np.array(0.5 * apart.mean()),
    }


def _profile(pattern: Float[np.ndarray, "query key"], context: int) -> Float[np.ndarray, " offset"]:
    """Return the mean of every diagonal of a pattern; NaN at offsets without a pair."""
    means = [float(np.diagonal(pattern, -back).mean()) for back in range(len(pattern))]
    return np.pad(means, (0, context - len(means)), constant_values=np.nan)
