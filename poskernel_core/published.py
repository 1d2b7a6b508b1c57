"""Figures as the posts published them, to stand beside ours; never shown as ours."""

from __future__ import annotations

__all__ = ["ANGLES_GPT2", "PREVIOUS_TOKEN_GPT2", "PREVIOUS_TOKEN_HEADS_GPT2"]

PREVIOUS_TOKEN_GPT2: dict[str, float] = {
    "L4H11": 0.01,
    "L5H6": 0.18,
    "L3H3": 0.33,
    "L2H2": 0.33,
    "L6H8": 0.43,
    "L7H0": 0.45,
    "L2H4": 0.46,
    "L1H0": 0.47,
    "L3H7": 0.50,
    "L8H7": 0.51,
    "L3H2": 0.52,
}
"""Second-largest diagonal over largest, GPT-2 small ("previous-token heads")."""

PREVIOUS_TOKEN_HEADS_GPT2 = (69, 144)
"""Heads of GPT-2 small whose largest diagonal is the previous token, and all heads."""

ANGLES_GPT2 = (8.0, 9.0, 10.0)
"""Canonical angles in degrees between the top-3 subspaces of W_pos and of layer 2, GPT-2 small."""
