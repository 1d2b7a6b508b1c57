"""Results of the pages on positions -> figures."""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from poskernel_core.common.attention import only_visible
from poskernel_core.common.result import Result
from poskernel_core.common.specs import BAND
from poskernel_core.figures.by_axes import by_axes
from poskernel_core.figures.effects import kl_by_position, loss_by_group, loss_by_position
from poskernel_core.figures.effects import next_token_bars as token_bars
from poskernel_core.figures.helix import angle_matrix, helix_3d, helix_frames
from poskernel_core.figures.kernels import profile_curve
from poskernel_core.figures.layout import THIRD, set_height, style
from poskernel_core.figures.palette import DIVERGING, SCALE
from poskernel_core.figures.stages import difference_map, robust_span, stage_map
from poskernel_core.figures.tangent import score_profile_figure, tangent_figure

OVERLAYS: dict[str, tuple[str, str | None]] = {
    "nothing": ("projection", None),
    "layer 0, on its axes": ("on_embedding", "first"),
    "layer 0, on this layer's axes": ("projection", "embedding_on_layer"),
    "layer 0, on the axes of both": ("joint", "embedding_joint"),
}
"""What is drawn of a layer, and of layer 0 (W_pos) beside it; ``first`` is its own projection."""
OWN_AXES = ("nothing", "layer 0, on this layer's axes")

FINE = 256
"""Maps of more rows than this are finer than the pixels of a third of the page."""
PATTERNS = ("clean", "changed", "difference")
STAGE_TITLES = {"score": "raw scores", "masked_score": "masked scores", "pattern": "probabilities"}


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


def profile_figure(head: Result, *, most: int) -> go.Figure:
    """One head's mean attention over the offset, up to `most` tokens back."""
    mean, error = (part["profile"][: most + 1] for part in (head.values, head.errors))
    figure = profile_curve(np.arange(len(mean)), mean, mean - error, mean + error)
    return figure.update_layout(height=420)  # as high as the scores beside it


def scores_figure(head: Result, title: str, reach: int = BAND) -> go.Figure:
    """One head's mean raw score up to `reach` tokens off the diagonal; its part by position."""
    shown = np.abs(head.coordinates["band"]) <= reach
    score, position = (head.values[f"{name}_profile"][shown] for name in ("score", "position"))
    return score_profile_figure(
        head.coordinates["band"][shown],
        score - np.nanmean(score),
        head.errors["score_profile"][shown],
        position=position - np.nanmean(position),
        title=title,
    )


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


def stage_figure(
    stages: Result, name: str, zoom: tuple[int, int] | None, *, whole: bool
) -> go.Figure:
    """One stage of attention: the whole text with the window outlined, or the window alone."""
    scores = stages.values["score"]
    first, stop = (0, len(scores)) if whole or zoom is None else zoom
    part = slice(first, stop)
    values = stages.values[name][part, part].astype(np.float64)
    if name == "pattern":
        hidden = np.isnan(stages.values["masked_score"][part, part])
        values = np.where(hidden, np.nan, values)
    span, unit = robust_span(scores[part, part].astype(np.float64)), "score (nats)"
    if name == "pattern":
        span, unit = (0.0, 1.0), "probability"
        if len(values) > FINE:  # a diagonal of one cell would be lost between the pixels
            values, span, unit = (
                np.log10(np.maximum(values, 1e-6)),
                (-5.0, 0.0),
                "log₁₀ probability",
            )
    figure = stage_map(
        values,
        title=STAGE_TITLES[name].capitalize(),
        first_query=first,
        first_key=first,
        tokens=stages.words("tokens") or None,
        span=span,
        window=zoom if whole else None,
        unit=unit,
    )
    return set_height(figure, THIRD)


def pattern_figure(found: Result, name: str, zoom: tuple[int, int] | None) -> go.Figure:
    """The observed head's attention in an intervention: clean, changed or their difference."""
    values = found.values[name].astype(np.float64)
    first, stop = zoom or (0, len(values))
    values = only_visible(values[first:stop, first:stop])
    tokens = found.words("tokens") or None
    if name == "difference":
        reach = max(float(np.nanmax(np.abs(values))), 1e-6)
        figure = difference_map(
            values,
            title="Difference",
            first_query=first,
            first_key=first,
            tokens=tokens,
            span=(-reach, reach),
            unit="changed − clean",
        )
    else:
        figure = stage_map(
            values,
            title=name.capitalize(),
            first_query=first,
            first_key=first,
            tokens=tokens,
            span=(0.0, 1.0),
            unit="probability",
        )
    return set_height(figure, THIRD)


def bars_figure(found: Result) -> go.Figure:
    """Next-token probabilities before and after."""
    return token_bars(
        found.words("candidates"),
        found.values["clean_probability"],
        found.values["changed_probability"],
    )


def losses_figure(found: Result) -> go.Figure:
    """The loss of every token of the prompt, before and after."""
    clean = found.values["clean_loss"]
    changed = found.values["changed_loss"]
    return loss_by_position(np.arange(len(clean)), clean, changed, title="Loss of each token")


def kl_figure(found: Result) -> go.Figure:
    """How far the prediction moved at every position."""
    kl = found.values["kl"]
    return kl_by_position(np.arange(len(kl)), kl, title="KL(clean ‖ changed)")


def averaging_figure(found: Result) -> go.Figure:
    """The loss against the size of the groups; errors are those of the paired difference."""
    where = "in W_pos" if found.params["layer"] is None else f"before layer {found.params['layer']}"
    return loss_by_group(
        found.coordinates["group"],
        found.values["loss"],
        found.errors["loss_change"],
        title=f"Positions averaged {where}",
    )


def table_figure(ranked: Result) -> go.Figure:
    """The ratio of the two largest diagonals of every head [layer, head]."""
    return _head_map(ranked.values["ratio"], "second / largest", (0.0, 1.0), SCALE)


def mass_figure(masses: Result) -> go.Figure:
    """The change of every head's attention to the previous token [layer, head]."""
    change = masses.values["previous_mass_change"]
    reach = max(0.01, float(np.abs(np.nan_to_num(change)).max()))
    return _head_map(change, "change of P(1)", (-reach, reach), DIVERGING)


def _head_map(
    values: Float[np.ndarray, "layer head"],
    unit: str,
    span: tuple[float, float],
    scale: tuple[str, ...],
) -> go.Figure:
    """One number per head as a heat map."""
    cells = go.Heatmap(
        z=values,
        zmin=span[0],
        zmax=span[1],
        colorscale=scale,
        xgap=1,
        ygap=1,
        colorbar={"title": unit},
        hovertemplate="<b>L%{y}H%{x}</b>: %{z:.3f}<extra></extra>",
    )
    figure = style(go.Figure(cells), x_title="head", y_title="layer", height=420)
    figure.update_xaxes(dtick=1, showgrid=False)
    return figure.update_yaxes(dtick=1, autorange="reversed", showgrid=False)


def ranking_figure(result: Result) -> go.Figure:
    """One head's mean raw scores, or the ratio of all heads."""
    if result.axes["score_profile"] == ("band",):
        return scores_figure(result, "Mean raw score by offset")
    return table_figure(result)


def tangent_reading_figure(result: Result) -> go.Figure:
    """One head's reading of the helix, or the fit of all heads."""
    if result.axes["position_score"] == ("band",):
        title = f"Reading the helix around n = {result.params['query']}"
        return tangents_figure(result, title)
    return by_axes(result.only("helix_fit"))


def stages_figure(result: Result) -> go.Figure:
    """The attention of a whole text, or of one row of it."""
    if result.axes["pattern"] == ("query", "key"):
        return stage_figure(result, "pattern", None, whole=True)
    return by_axes(result.only("pattern"))
