"""Classify heads by diagonal and by mechanism of attention to the previous token."""

from collections.abc import Mapping

import numpy as np

from poskernel_core.analyses.previous_token import formulas as bands

DIAGONALS = ("dark main diagonal", "bright first diagonal", "neither")
MECHANISMS = (
    "negative self-attention",
    "aggregator",
    "by position",
    "previous token, other",
    "current token",
    "look back",
    "no diagonal stands out",
)


def read_diagonal(contrast: np.ndarray, error: np.ndarray, least: float) -> np.ndarray:
    """Return every head's diagonal ``[layer, head]`` as codes of :data:`DIAGONALS`.

    ``error`` is the standard error of ``contrast [layer, head, 2]``. A contrast below ``least``
    standard errors counts as none.
    """
    limit = least * np.nan_to_num(error)
    depth, height = -contrast[..., 0], contrast[..., 1]
    dark = (depth > limit[..., 0]) & (depth >= height)
    bright = (height > limit[..., 1]) & (height > depth)
    return np.where(dark, 0, np.where(bright, 1, 2))


def read_kind(values: Mapping[str, np.ndarray], least: np.ndarray, clean: float) -> np.ndarray:
    """Return every head's kind ``[layer, head]`` as codes of :data:`MECHANISMS`.

    ``least [layer, head, 2]``: what the content's dip at offset 0 and its peak at 1 must exceed.
    """
    largest, least = values["largest_offset"], np.nan_to_num(least)
    self_kink, previous_kink = bands.contrasts(values["content_profile"])
    content = values["content_advantage"] > np.maximum(values["position_advantage"], 0)
    position = values["position_advantage"] > np.maximum(values["content_advantage"], 0)
    later = np.arange(len(largest))[:, None] > 0
    dip = (-self_kink > least[..., 0]) & (-self_kink >= previous_kink)
    peak = (previous_kink > least[..., 1]) & (previous_kink > -self_kink) & later
    by_content = np.where(dip, 0, np.where(peak, 1, 3))
    previous = np.where(content, by_content, np.where(position, 2, 3))
    kinds = np.where(largest == 1, previous, np.where(largest == 0, 4, 5))
    return np.where(values["ratio"] >= clean, 6, kinds)
