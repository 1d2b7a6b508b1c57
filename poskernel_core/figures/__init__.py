"""Values -> plotly figures. Nothing here imports streamlit."""

from poskernel_core.figures.effects import (
    kl_by_position,
    loss_by_group,
    loss_by_position,
    next_token_bars,
)
from poskernel_core.figures.helix import (
    angle_matrix,
    helix_3d,
    helix_frames,
    layer_lines,
    variance_bars,
)
from poskernel_core.figures.kernels import kernel_curve, profile_curve
from poskernel_core.figures.maps import folded_square, kernel_map
from poskernel_core.figures.multiples import small_multiples
from poskernel_core.figures.stages import difference_map, stage_map
from poskernel_core.figures.tangent import score_profile_figure, tangent_figure

__all__ = [
    "angle_matrix",
    "difference_map",
    "folded_square",
    "helix_3d",
    "helix_frames",
    "kernel_curve",
    "kernel_map",
    "kl_by_position",
    "layer_lines",
    "loss_by_group",
    "loss_by_position",
    "next_token_bars",
    "profile_curve",
    "score_profile_figure",
    "small_multiples",
    "stage_map",
    "tangent_figure",
    "variance_bars",
]
