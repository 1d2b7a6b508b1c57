"""What ``precompute`` computes: the results that the pages ask for when nothing was changed."""

from __future__ import annotations

from typing import Any

from poskernel_core.analyses import ANALYSES
from poskernel_core.common.specs import RunSpec
from poskernel_core.models.geometry import Geometry

__all__ = ["first_questions"]


def first_questions(
    run: RunSpec, geometry: Geometry, cell: str, *, experiments: bool
) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and parameters of what the pages ask for first.

    ``cell`` is the head that the pages open on; ``experiments`` adds what runs the model again.
    """
    wanted = {"always", "experiments"} if experiments else {"always"}
    return [
        (
            name,
            question.fitting(run, geometry)
            | ({"head": cell} if "head" in question.params.model_fields else {}),
        )
        for name, question in ANALYSES.items()
        if question.precomputed in wanted and question.scheme in ("", geometry.scheme)
    ]
