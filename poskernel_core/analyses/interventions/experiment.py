"""Run one prompt clean and changed, and windows of text with positions averaged in groups."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.helix.formulas import GROUP_SIZES
from poskernel_core.analyses.interventions.spec import (
    Averaging,
    AveragingParams,
    AveragingPlace,
    Intervention,
    InterventionParams,
)
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.data.moves import parse_cells, parse_layers, parse_moves
from poskernel_core.forward import interventions
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.readout import Measured, kl_divergence, log_probabilities, measure
from poskernel_core.statistics.moments import means_of

CANDIDATES = 6
FIRST_LAYERS = 4


def intervene(subject: ExperimentContext, params: InterventionParams) -> Result:
    """Run the prompt clean and changed; see :class:`spec.Intervention`."""
    geometry = subject.model.geometry
    cell = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
    edit = build_edit(subject, params)
    if subject.windows.shape[1] < 2 + subject.start_token:
        raise BadRequest("Expected a prompt of two tokens or more, got fewer: type a few words.")
    runs = []
    for done, applied_edit in enumerate((Edit(), edit)):
        subject.progress(done, 2)
        measurement = measure(
            subject.model, subject.windows, applied_edit, start_token=subject.start_token, cell=cell
        )
        runs.append(measurement)
    subject.progress(2, 2)
    return Intervention.result(params, **_compared(subject, *runs))


def build_edit(subject: ExperimentContext, params: InterventionParams) -> Edit:
    """Return the edit that the parameters describe, for this model and prompt."""
    geometry = subject.model.geometry
    sizes = geometry.n_layers, geometry.n_heads
    match params.change:
        case "average":
            return averaging_edit(subject, params, params.group)
        case "blind":
            first_four = f"0-{min(FIRST_LAYERS, geometry.n_layers) - 1}"
            layers = parse_layers(params.layers.strip() or first_four, geometry.n_layers)
            return interventions.PredecessorKnockout(params.every, layers, params.stage)
        case "move":
            layer, head = parse_cell(params.edited or params.head, *sizes)
            moves = parse_moves(params.moves, subject.words)
            return interventions.MovedAttention(
                layer, head, moves, params.stage, params.strength, params.scale, params.scope
            )
        case "ablate":
            return interventions.AblatedHeads(parse_cells(params.heads, *sizes))
        case "remove":
            return interventions.RemovedEmbeddings(params.embeddings)


def averaging_edit(subject: ExperimentContext, place: AveragingPlace, group: int) -> Edit:
    """Return the edit that averages positions, in ``W_pos`` or in the stream before a layer."""
    geometry, layer = subject.model.geometry, place.layer
    if geometry.scheme != "learned":
        raise BadRequest(
            f"{subject.model.located.spec.name!r} has {geometry.scheme} positions, so there are no "
            "positional embeddings to average: choose another change, or a model with "
            "learned positions."
        )
    if layer is None:
        return interventions.AveragedPositions(group, subject.model.position_matrix(), place.keep)
    if layer >= geometry.n_layers:
        raise BadRequest(f"Expected a layer from 0 to {geometry.n_layers - 1}, got {layer}.")
    rows = torch.from_numpy(subject.statistics["repeated"].layer(layer)["mean_residuals"].copy())
    return interventions.AveragedStream(layer, group, rows.to(subject.model.device), place.keep)


def _compared(subject: ExperimentContext, clean: Measured, changed: Measured) -> dict[str, Any]:
    values = {"kl": kl_divergence(clean.logits, changed.logits)}
    for name, run in (("clean", clean), ("changed", changed)):
        values[name] = run.pattern
        values[f"{name}_loss"] = run.loss
        values[f"mean_{name}_loss"] = np.array(run.loss[1:].mean())
        values[f"{name}_previous_mass"] = run.previous_mass
    last = [log_probabilities(run.logits, slice(-1, None))[0].numpy() for run in (clean, changed)]
    chosen = _candidates(*last)
    rise = (changed.loss - clean.loss)[1:]
    error = float(rise.std(ddof=1) / np.sqrt(len(rise))) if len(rise) > 1 else np.nan
    values |= {
        "difference": changed.pattern - clean.pattern,
        "clean_probability": np.exp(last[0][chosen]),
        "changed_probability": np.exp(last[1][chosen]),
        "loss_change": np.array(rise.mean()),
        "last_kl": np.array(values["kl"][-1]),
        "mean_kl": np.array(values["kl"].mean()),
        "previous_mass_change": changed.previous_mass - clean.previous_mass,
    }
    return {
        "values": {value.name: values[value.name] for value in Intervention.values},
        "errors": {"loss_change": np.array(error)},
        "coordinates": {"candidate": chosen},
        "texts": {"candidates": subject.decode(chosen.tolist())},
    }


def _candidates(clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Return both runs' likeliest next tokens, ordered by their probability in the clean run."""
    both = np.union1d(*(np.argsort(-row, kind="stable")[:CANDIDATES] for row in (clean, changed)))
    return both[np.argsort(-clean[both], kind="stable")]


def average(subject: ExperimentContext, params: AveragingParams) -> Result:
    """Run every window with every group size; see :class:`spec.Averaging`."""
    sizes = (1, *GROUP_SIZES)
    edits = [averaging_edit(subject, params, size) for size in sizes]

    def effects(measurement: Measured, clean: Measured) -> dict[str, Any]:
        return {
            "loss": float(np.nanmean(measurement.loss)),
            "previous_mass": measurement.previous_mass,
        }

    values = each_window(subject, edits, effects)
    ordered = {value.name: values[value.name] for value in Averaging.values}
    coordinates = {"group": np.array(sizes)}
    return Averaging.estimated(subject, params, means_of(ordered), coordinates=coordinates)


def each_window(
    subject: ExperimentContext,
    edits: Sequence[Edit],
    effects: Callable[[Measured, Measured], dict[str, Any]],
    cell: tuple[int, int] | None = None,
) -> dict[str, np.ndarray]:
    """Return what every edit does to every window, ``[text, edit, ...]`` by name.

    The first edit is the clean run; ``effects`` of a run and the clean one have their ``loss`` and
    ``previous_mass``, whose changes are added. ``cell`` is the head whose pattern is read.
    """
    rows: list[list[dict[str, Any]]] = []
    for text in range(len(subject.windows)):
        clean: Measured | None = None
        rows.append([])
        window = subject.windows[text : text + 1]
        for place, edit in enumerate(edits):
            subject.progress(text * len(edits) + place, len(subject.windows) * len(edits))
            measurement = measure(
                subject.model, window, edit, start_token=subject.start_token, cell=cell
            )
            clean = clean or measurement
            rows[-1].append(effects(measurement, clean))
    arrays = {name: np.array([[run[name] for run in row] for row in rows]) for name in rows[0][0]}
    for name in ("loss", "previous_mass"):
        arrays[f"{name}_change"] = arrays[name] - arrays[name][:, :1]
    return arrays
