"""Measures of all heads: which question declares them, and with which parameters to ask it."""

from collections.abc import Iterable
from typing import Any

from poskernel_core.analyses.base import Params, Question
from poskernel_core.analyses.head_measure import HeadMeasure
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result
from poskernel_core.common.specs import RunSpec
from poskernel_core.models.geometry import Geometry


def fits(question: Question[Any], declared: HeadMeasure, geometry: Geometry) -> bool:
    """Return whether a model's position scheme, architecture and windows allow a measure."""
    windows = any(layer.window is not None for layer in geometry.layers)
    return (
        question.fits_scheme(geometry.scheme)
        and (
            not declared.only
            or not {*declared.only}.isdisjoint((geometry.architecture, geometry.scheme))
        )
        and (windows or not declared.of_windows)
    )


def asked_with(
    question: Question[Any], run: RunSpec, geometry: Geometry, *, query: int, skip: int
) -> Params:
    """Return a question's parameters: the model's defaults, with ``query`` and ``skip`` set."""
    chosen = {"query": query, "skip": skip}
    given = question.default_params(run, geometry)
    given |= {name: value for name, value in chosen.items() if name in question.params.model_fields}
    params: Params = question.params(**given)
    return params


def one_a_head(declared: HeadMeasure, result: Result, *, query: int) -> Result:
    """Reduce a result to one number per head, at one position and the last entry of ``last``."""
    if declared.value not in result.values:
        raise BadRequest(
            f"{declared.title!r} compares query positions: it comes with the last windows."
        )
    if "query" in result.axes[declared.value]:
        result = result.select(query=query)
    last = declared.last
    return result.select(**{last: int(result.coordinates[last][-1])}) if last else result


def measure_called(
    title: str, questions: Iterable[Question[Any]]
) -> tuple[Question[Any], HeadMeasure]:
    """Return the measure with this title, and the question that declares it."""
    titles = []
    for question in questions:
        for declared in question.measures:
            if declared.title == title:
                return question, declared
            titles.append(declared.title)
    raise BadRequest(f"No measure {title[:60]!r}: expected one of {', '.join(titles)}.")
