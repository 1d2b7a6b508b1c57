"""One prompt, clean and changed: from parameters to an edit, and from two runs to a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.config import parse_cell
from poskernel_core.edits import Edit
from poskernel_core.errors import BadRequest
from poskernel_core.experiments import changes
from poskernel_core.experiments.measures import Measured, kl_divergence, measure
from poskernel_core.moves import parse_cells, parse_layers, parse_moves
from poskernel_core.views import StatisticsView

if TYPE_CHECKING:
    from poskernel_core.analyses.intervention import InterventionParams

__all__ = ["averaging_edit", "build_edit", "intervene"]

CANDIDATES = 6
FIRST_LAYERS = 4
HEAD = ("layer", "head")
AXES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("clean", "changed", "difference"), ("query", "key")),
    **dict.fromkeys(("clean_probability", "changed_probability"), ("candidate",)),
    **dict.fromkeys(("clean_loss", "changed_loss", "kl"), ("pos",)),
    **dict.fromkeys(("mean_clean_loss", "mean_changed_loss", "loss_change"), ()),
    **dict.fromkeys(("last_kl", "mean_kl"), ()),
    **dict.fromkeys(("clean_previous_mass", "changed_previous_mass", "previous_mass_change"), HEAD),
}
SHARE = "share of attention"


def intervene(
    subject: Subject,
    statistics: Mapping[str, StatisticsView],
    params: InterventionParams,
    progress: Progress,
) -> Result:
    """Run the prompt clean and changed; see :class:`~poskernel_core.analyses.Intervention`.

    Raises:
        BadRequest: a head, layer, row or key that is not there.
    """
    geometry = subject.model.geometry
    cell = parse_cell(params.cell, geometry.n_layers, geometry.n_heads)
    edit = build_edit(subject, statistics, params)
    if subject.windows.shape[1] < 2:
        raise BadRequest("Expected a prompt of two tokens or more: type a few words.")
    runs = []
    for done, each in enumerate((Edit(), edit)):
        progress(done, 2)
        runs.append(
            measure(
                subject.model, subject.windows, each, start_token=subject.start_token, cell=cell
            )
        )
    progress(2, 2)
    return _result(subject, params, *runs)


def build_edit(
    subject: Subject, statistics: Mapping[str, StatisticsView], params: InterventionParams
) -> Edit:
    """Return the edit that the parameters describe, for this model and prompt.

    Raises:
        BadRequest: a head, layer, row or key that is not there, or positions that are not learned.
    """
    geometry = subject.model.geometry
    sizes = geometry.n_layers, geometry.n_heads
    match params.change:
        case "average":
            return averaging_edit(subject, statistics, params.layer, params.group)
        case "blind":
            first_four = f"0-{min(FIRST_LAYERS, geometry.n_layers) - 1}"
            layers = parse_layers(params.layers.strip() or first_four, geometry.n_layers)
            return changes.BlindPredecessor(params.every, layers, params.stage)
        case "move":
            layer, head = parse_cell(params.edited or params.cell, *sizes)
            moves = parse_moves(params.moves, subject.words)
            return changes.MovedAttention(
                layer, head, moves, params.stage, params.strength, params.scale, params.scope
            )
        case "silence":
            return changes.SilencedHeads(parse_cells(params.heads, *sizes))
        case "remove":
            if params.embeddings == "positions":
                need_learned(subject)
            return changes.RemovedEmbeddings(params.embeddings)


def averaging_edit(
    subject: Subject, statistics: Mapping[str, StatisticsView], layer: int | None, group: int
) -> Edit:
    """Return the edit that averages positions, in ``W_pos`` or in the stream before a layer.

    Raises:
        BadRequest: positions that are not learned, or no such layer.
    """
    need_learned(subject)
    if layer is None:
        return changes.AveragedPositions(group, subject.model.position_matrix())
    n_layers = subject.model.geometry.n_layers
    if layer >= n_layers:
        raise BadRequest(f"Expected a layer from 0 to {n_layers - 1}, got {layer} (--layer).")
    rows = torch.from_numpy(statistics["repeated"].layer(layer)["mean_residuals"].copy())
    return changes.AveragedStream(layer, group, rows.to(subject.model.device))


def need_learned(subject: Subject) -> None:
    """Refuse a model without positional embeddings.

    Raises:
        BadRequest: the model's positions are rotary.
    """
    geometry = subject.model.geometry
    if geometry.scheme != "learned":
        raise BadRequest(
            f"{subject.model.located.spec.name!r} has {geometry.scheme} positions, so there are no "
            "positional embeddings to average or remove: choose another change, or a model with "
            "learned positions."
        )


def _result(
    subject: Subject, params: InterventionParams, clean: Measured, changed: Measured
) -> Result:
    kl = kl_divergence(clean.log_probabilities, changed.log_probabilities)
    chosen = _candidates(clean, changed)
    rise = (changed.loss - clean.loss)[1:]
    error = float(rise.std(ddof=1) / np.sqrt(len(rise))) if len(rise) > 1 else np.nan
    values = {
        "clean": clean.pattern,
        "changed": changed.pattern,
        "difference": changed.pattern - clean.pattern,
        "clean_probability": np.exp(clean.log_probabilities[-1, chosen]),
        "changed_probability": np.exp(changed.log_probabilities[-1, chosen]),
        "clean_loss": clean.loss,
        "changed_loss": changed.loss,
        "kl": kl,
        "mean_clean_loss": np.array(clean.loss[1:].mean()),
        "mean_changed_loss": np.array(changed.loss[1:].mean()),
        "loss_change": np.array(rise.mean()),
        "last_kl": np.array(kl[-1]),
        "mean_kl": np.array(kl.mean()),
        "clean_previous_mass": clean.previous_mass,
        "changed_previous_mass": changed.previous_mass,
        "previous_mass_change": changed.previous_mass - clean.previous_mass,
    }
    return Result(
        analysis="intervention",
        params=params.model_dump(),
        values=values,
        axes=AXES,
        units={name: _unit(name) for name in AXES},
        errors={"loss_change": np.array(error)},
        coordinates={"candidate": chosen},
        provenance={"candidates": subject.decode(chosen.tolist())},
    )


def _candidates(clean: Measured, changed: Measured) -> np.ndarray:
    """Return the likeliest next tokens of both runs, the likeliest of the clean one first."""
    last = clean.log_probabilities[-1], changed.log_probabilities[-1]
    both = np.union1d(*(np.argsort(-row, kind="stable")[:CANDIDATES] for row in last))
    return both[np.argsort(-last[0][both], kind="stable")]


def _unit(name: str) -> str:
    if "probability" in name:
        return "probability"
    return "nats" if "loss" in name or "kl" in name else SHARE
