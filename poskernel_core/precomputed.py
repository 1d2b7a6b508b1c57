"""What ``precompute`` computes: the results that the pages ask for when nothing was changed."""

from __future__ import annotations

from typing import Any

from poskernel_core.geometry import Geometry

__all__ = ["PERIOD", "RANDOM_TOKENS", "SAMPLES", "experiment_questions", "standard_questions"]

Questions = list[tuple[str, dict[str, Any]]]
"""Names and parameters."""

SAMPLES = 2000
"""Random sequences that the page on recency averages over."""

PERIOD = 24
"""Random tokens that are repeated once to find induction heads."""

RANDOM_TOKENS = 48
"""Length at which attention to random tokens is shown first."""

STANDARD = ("etc", "kernel", "kernel-distances", "profile", "previous-token", "tangent")
CONTEXTUAL = ("contextual-heads", "contextual-neurons")
OF_A_HEAD = ("denominators", "token-weights")


def standard_questions(geometry: Geometry) -> Questions:
    """Return what the pages on heads and positions ask for."""
    helix = {} if geometry.scheme == "learned" else {"prompts": "texts"}
    return [*((name, {}) for name in STANDARD), ("helix", helix)]


def experiment_questions(geometry: Geometry, cell: str = "L0H0") -> Questions:
    """Return what the pages on random tokens and on contextual heads ask for first.

    ``cell`` is the head that the pages open on.
    """
    longest = geometry.n_ctx
    many = {"samples": SAMPLES}
    return [
        ("induction-scores", {"period": min(PERIOD, (longest - 1) // 2)}),
        ("induction-recency", {**many, "length": min(13, longest)}),
        ("recency-patterns", {**many, "length": min(13, longest), "second": min(10, longest - 3)}),
        ("random-attention", {**many, "length": min(RANDOM_TOKENS, longest)}),
        ("position-vs-token", {"length": min(24, longest)}),
        ("position-zero", {"length": min(11, longest)}),
        *((name, {}) for name in CONTEXTUAL),
        *((name, {"cell": cell}) for name in OF_A_HEAD),
    ]
