"""Values -> plotly figures. Nothing here imports streamlit."""

from pages.parts.figures.kernels import kernel_curve, profile_curve
from pages.parts.figures.layout import chart_config
from pages.parts.figures.maps import folded_square, kernel_map
from pages.parts.figures.multiples import small_multiples

__all__ = [
    "chart_config",
    "folded_square",
    "kernel_curve",
    "kernel_map",
    "profile_curve",
    "small_multiples",
]
