"""The results that ``precompute`` computes: all results on the pages at default settings."""

from typing import Any

from poskernel_core.analyses import ANALYSES
from poskernel_core.common.specs import RunSpec
from poskernel_core.models.geometry import Geometry


def first_questions(
    run: RunSpec, geometry: Geometry, cell: str, *, experiments: bool
) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and parameters of the questions that the pages ask by default.

    ``cell`` is the head that the pages open on; ``experiments`` adds experiments, which run the
    model again.
    """
    wanted = {"always", "experiments"} if experiments else {"always"}
    return [
        (
            name,
            question.default_params(run, geometry)
            | ({"head": cell} if "head" in question.params.model_fields else {}),
        )
        for name, question in ANALYSES.items()
        if question.precomputed in wanted and question.fits_scheme(geometry.scheme)
    ]
