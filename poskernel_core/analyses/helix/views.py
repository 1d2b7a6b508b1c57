"""What is drawn and said of the helix, and of how heads read it."""

import math
from functools import partial

import numpy as np

from poskernel_core.analyses.claims import param
from poskernel_core.analyses.helix.figures import (
    angles_figure,
    morph_figure,
    positions_figure,
    shape_figure,
    tangents_figure,
    variance_figure,
)
from poskernel_core.analyses.helix.spec import SHOWN
from poskernel_core.analyses.pictures import heads
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief

SMOOTH_SHARE = 0.85
"""Positions lie on a smooth curve if three components hold at least this share of the variance."""


def _variance(result: Result) -> str:
    shares = np.atleast_2d(result.values["explained_variance"])[:, :SHOWN].sum(axis=1)
    layers = [result.chosen["layer"]] if "layer" in result.chosen else range(len(shares))
    if not shares.all():
        return ""
    holds = (shares >= SMOOTH_SHARE).sum()
    first = f"{brief(shares[0])} before layer {layers[0]}"
    if not holds:
        return (
            f"The first three components hold less than {SMOOTH_SHARE:g} of the variance over "
            f"positions ({first}), so three dimensions do not show the whole curve."
        )
    where = f" in {holds} of {len(shares)} layers" if len(shares) > 1 else ""
    return (
        f"The first three components hold {SMOOTH_SHARE:g} or more of the variance over "
        f"positions{where} ({first}), so the curve shows nearly all of it{' there' * bool(where)}."
    )


def _angles(result: Result) -> str:
    turned = [
        float(result.values[name][0, -1, -1]) for name in ("angles_residual", "angles_position")
    ]
    last = len(result.values["angles_residual"]) - 1
    if last < 1 or any(map(math.isnan, turned)):
        return ""
    stream, position = map(brief, turned)
    return (
        f"From layer 0 to layer {last} the top-{param(result, 'subspace')} subspace turns by up to "
        f"{stream}° in the residual stream and {position}° in position space (90°: a new direction "
        "at right angles)."
    )


def _shape(result: Result) -> str:
    shares = result.values["far_share"]
    first, last = shares[[0, -1]]
    if first == last:
        return ""
    turns = "falls" if last < first else "rises"
    return (
        f"The share of entries far from 0 (beyond {param(result, 'far'):g} rms) {turns} from "
        f"{brief(first)} before layer 0 to {brief(last)} before layer "
        f"{len(shares) - 1}."
    )


VIEWS: Views = {
    "helix": (
        View(
            "projection [pos component], explained_variance [variance_component]",
            positions_figure,
            "Positions before layer {layer}",
            reading="Each point is a position, on the first three principal components of the "
            "residual stream before the chosen layer (in brackets their shares of the variance); "
            "neighbours are joined. In GPT-2 small the positions form a helix. Drag to turn it. If "
            "you narrow the range of positions, the components are still those of all positions. "
            "Green diamonds are averages of neighbouring positions: where they fall towards the "
            "axis, averaging removes the differences between neighbours.",
        ),
        View(
            "projection [layer pos component]",
            morph_figure,
            reading="The same curve in every layer. Each layer is drawn on its own components and "
            "its own scale; the components' signs are chosen to agree between layers. Press play, "
            "or move the slider below the figure.",
        ),
        View(
            "explained_variance [layer variance_component]",
            variance_figure,
            "Explained variance",
            says=_variance,
            reading="For every layer, the share of the variance over positions that the first "
            "components hold. If few suffice, the positions lie on a curve in few dimensions.",
        ),
        View("explained_variance [variance_component]", says=_variance),
        View(
            "angles_residual angles_position [layer layer_2 angle]",
            says=_angles,
            reading="The largest canonical angle between the top-k subspaces of two layers: 0° if "
            "they are equal, 90° if one has a direction orthogonal to the other. Hover for all k "
            "angles. Left: in the residual stream (which directions hold position). Right: in "
            "position space (which functions of position they hold).",
        ),
        View(
            "angles_residual [layer layer_2 angle]",
            partial(angles_figure, name="angles_residual"),
            "Residual stream",
        ),
        View(
            "angles_position [layer layer_2 angle]",
            partial(angles_figure, name="angles_position"),
            "Position space",
        ),
        View(
            "far_share token_spread [layer]",
            shape_figure,
            "Sparsity and spread",
            reading="*Far from 0*: the share of entries of $X^l$ beyond the chosen multiple of "
            "their root mean square; the post finds about a third as many in later layers as in "
            "$W_\\text{pos}$. *Spread*: how much one prompt's embeddings differ from the mean, "
            "relative to the mean. With repeated tokens it is small if the choice of token hardly "
            "matters; with windows it is mostly content.",
        ),
        View("far_share [layer]", says=_shape),
    ),
    "tangent": (
        View(
            "position_score tangent_part radial_part third_part rest observed_score [band]",
            tangents_figure,
            "reading the helix around n = {query}",
            reading="Solid: the score by position alone, around the query. It is the sum of the "
            "parts along the helix's *tangent* (later positions score higher), along its *radius* "
            "(near positions score higher), and the rest, which here includes the third direction. "
            "Dots: the mean raw scores of text at that offset, over all query positions, content "
            "included. A click on a name in the legend shows or hides its line; radius and rest "
            "are shown at first if they vary more than the tangent's part. Early previous-token "
            "heads of GPT-2 small read the tangent, and a dip at the own token leaves the previous "
            "one as the largest visible score.",
            explains="helix_fit",
        ),
        View(
            "helix_fit [layer head]",
            partial(heads, name="helix_fit"),
            "Share of each head's scores by position that the helix explains",
        ),
    ),
}
