"""Compute the results that the reproduction ledger compares with published figures."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from poskernel_core.api import build_request
from poskernel_core.common.errors import BadRequest, InvalidField, PosKernelError, UnknownField
from poskernel_core.common.result import Result
from poskernel_core.common.specs import AnyModel, Request
from poskernel_core.engine.engine import Engine, engine_or_shared
from poskernel_core.ledger.compare import Checked, check, not_computed
from poskernel_core.ledger.published import PublishedFigure, figures_of
from poskernel_core.models import catalog
from poskernel_core.models.fragments import part_of, refuse


def published_name(model: str) -> str:
    """Return the name used for published figures; for a partial model, that of the whole model."""
    full_name = part_of(catalog.locate(model).config) if catalog.is_local(model) else None
    return full_name or model


def request_for(figure: PublishedFigure, model: str, **run: Any) -> Request:
    """Return the request that computes a figure; ``run`` are fields that the figure leaves open.

    Raises:
        BadRequest: the model, or something requested of it, does not exist.
        NotInModel: a partial model lacks what the figure needs.
    """
    if figure.needs and catalog.is_local(model):
        refuse(model, catalog.locate(model).config, figure.needs)
    fields = run | figure.run
    try:
        return build_request(figure.question, model, params=figure.params, **fields)[0]
    except (TypeError, InvalidField, UnknownField) as error:
        said = str(error).splitlines()[0][:200]
        raise BadRequest(f"The figure's run {figure.run} is not one: {said}") from error


def compare(
    model: str, figures: Iterable[PublishedFigure], answer: Callable[[Request], Result], **run: Any
) -> Iterator[Checked]:
    """Yield the lines of the ledger one by one; ``answer`` computes the result of a request."""
    for figure in figures:
        try:
            yield check(figure, answer(request_for(figure, model, **run)))
        except PosKernelError as error:
            yield not_computed(figure, error)


def reproduce(
    model: AnyModel,
    figures: Iterable[PublishedFigure] | None = None,
    *,
    engine: Engine | None = None,
    **run: Any,
) -> list[Checked]:
    """Return the ledger of a model, computing missing results.

    A partial model is compared with the figures of the whole model.

    Args:
        model: its name, directory or description.
        figures: published figures (default: those published for the model).
        engine: the engine to use (default: this process's shared one, on the default store).
        run: fields of the run that the figures leave open (``corpus``, ``windows``, ...).

    Raises:
        BadRequest: unknown model, or an invalid figure or engine.
    """
    own = engine_or_shared(engine)
    spec = catalog.locate(model, run.get("revision")).spec
    if figures is None:
        figures = figures_of(published_name(spec.name))
    checked = [PublishedFigure.model_validate(figure) for figure in figures]

    def answer(request: Request) -> Result:
        result = own.result(request)
        assert result is not None  # no time limit was set
        return result

    return list(compare(spec.name, checked, answer, **run | {"revision": spec.revision}))
