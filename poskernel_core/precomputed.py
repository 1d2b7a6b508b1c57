"""What ``precompute`` computes: the results that the pages ask for when nothing was changed."""

from __future__ import annotations

from typing import Any

from poskernel_core.geometry import Geometry

__all__ = ["PERIOD", "RANDOM_TOKENS", "SAMPLES", "standard_questions"]

SAMPLES = 2000
"""Random sequences that the page on recency averages over."""

PERIOD = 24
"""Random tokens that are repeated once to find induction heads."""

RANDOM_TOKENS = 48
"""Length at which attention to random tokens is shown first."""

STANDARD = ("etc", "kernel", "profile", "previous-token", "tangent")


def standard_questions(
    geometry: Geometry, *, experiments: bool
) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and parameters of each result; experiments on random tokens if asked for."""
    helix = {} if geometry.scheme == "learned" else {"prompts": "texts"}
    found: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in STANDARD]
    found.append(("helix", helix))
    if not experiments:
        return found
    longest = geometry.n_ctx
    many = {"samples": SAMPLES}
    return [
        *found,
        ("induction-scores", {"period": min(PERIOD, (longest - 1) // 2)}),
        ("induction-recency", {**many, "length": min(13, longest)}),
        ("recency-patterns", {**many, "length": min(13, longest), "second": min(10, longest - 3)}),
        ("random-attention", {**many, "length": min(RANDOM_TOKENS, longest)}),
        ("position-vs-token", {"length": min(24, longest)}),
        ("position-zero", {"length": min(11, longest)}),
    ]
