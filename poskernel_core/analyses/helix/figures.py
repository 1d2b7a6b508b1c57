"""The helix and what heads read of it, as figures."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.helix.drawing import angle_matrix, helix_3d, helix_frames
from poskernel_core.common.result import Result
from poskernel_core.common.specs import BAND
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.scores import tangent_figure

OVERLAYS: dict[str, tuple[str, str | None]] = {
    "nothing": ("projection", None),
    "layer 0, on its axes": ("on_embedding", "first"),
    "layer 0, on this layer's axes": ("projection", "embedding_on_layer"),
    "layer 0, on the axes of both": ("joint", "embedding_joint"),
}
"""What is drawn of a layer, and of layer 0 (W_pos) beside it; ``first`` is its own projection."""
OWN_AXES = ("nothing", "layer 0, on this layer's axes")


def helix_figure(
    helix: Result, layer: int, span: tuple[int, int], group: int | None, overlay: str
) -> go.Figure:
    """One layer's positions from `span[0]` to `span[1]`, with averages of `group` or W_pos."""
    positions = helix.coordinates["pos"]
    shown = (positions >= span[0]) & (positions <= span[1])
    name, beside = OVERLAYS[overlay]
    values = helix.values
    other = None
    if beside is not None:
        other = values["projection"][0] if beside == "first" else values[beside][layer]
    groups = None
    if group is not None and overlay in OWN_AXES:
        starts = helix.coordinates[f"group_of_{group}"]
        inside = (starts >= span[0]) & (starts + group - 1 <= span[1])
        groups = values[f"group_{group}"][layer][inside] if inside.any() else None
    own = overlay in OWN_AXES
    return helix_3d(
        values[name][layer][shown],
        positions[shown],
        title=f"Positions before layer {layer}",
        groups=groups,
        other=None if other is None else other[shown],
        other_name=first_name(helix),
        name=f"before layer {layer}",
        shares=values["explained_variance"][layer, :3] if own else None,
    )


def first_name(helix: Result) -> str:
    """What layer 0 holds: W_pos, or, over windows and without learned ones, its mean stream."""
    return "W_pos" if helix.params["prompts"] == "repeated" else "the stream before layer 0"


def morph_figure(helix: Result) -> go.Figure:
    """Every layer's positions as an animation, each layer in units of its own size."""
    points = helix.values["projection"]
    size = np.sqrt(np.square(points).sum(axis=2).mean(axis=1))
    return helix_frames(
        points / np.where(size > 0, size, 1.0)[:, None, None],
        helix.coordinates["pos"],
        title="From layer to layer",
        shares=helix.values["explained_variance"][:, :3],
    )


def angles_figure(helix: Result, name: str) -> go.Figure:
    """The largest canonical angle between every two layers."""
    layers = [f"{layer}" for layer in range(len(helix.values[name]))]
    if name == "angles_position" and helix.provenance["position_scheme"] == "learned":
        layers[0] = "W_pos"
    titles = {"angles_residual": "Residual stream", "angles_position": "Position space"}
    return angle_matrix(helix.values[name].max(axis=-1), title=titles[name], labels=layers)


def tangents_figure(head: Result, title: str, reach: int = BAND) -> go.Figure:
    """One head's position-only score around the query, split along the helix."""
    shown = np.abs(head.coordinates["band"]) <= reach
    values = {name: value[shown] for name, value in head.values.items() if value.ndim}
    return tangent_figure(
        head.coordinates["band"][shown],
        values["position_score"],
        values["tangent_part"],
        values["radial_part"],
        values["rest"] + values["third_part"],
        values["observed_score"],
        title=title,
    )


def tangent_reading_figure(result: Result) -> go.Figure:
    """One head's reading of the helix, or the fit of all heads."""
    if result.axes["position_score"] == ("band",):
        title = f"Reading the helix around n = {result.params['query']}"
        return tangents_figure(result, title)
    return by_axes(result.only("helix_fit"))
