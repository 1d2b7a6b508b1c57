"""Computing what the reproduction ledger compares: from published figures to results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from poskernel_core.api import build_request
from poskernel_core.common.errors import BadRequest, PosKernelError, UnfitField, UnknownField
from poskernel_core.common.result import Result
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.engine.engine import Engine
from poskernel_core.ledger.compare import Checked, check, not_computed
from poskernel_core.ledger.published import Published, figures_of
from poskernel_core.models import catalog
from poskernel_core.models.fragments import part_of, refuse

__all__ = ["compare", "published_name", "reproduce", "request_for"]


def published_name(model: str) -> str:
    """Return the name under which figures of a model were published: a part has its whole's."""
    whole = part_of(catalog.locate(model).config) if catalog.is_local(model) else None
    return whole or model


def request_for(figure: Published, model: str, **run: Any) -> Request:
    """Return the request whose result holds a figure; ``run`` are fields that the figure leaves.

    Raises:
        BadRequest: the model, or something asked of it, is not there.
        NotInModel: the model is a part of another one, without what the figure needs.
    """
    if figure.needs and catalog.is_local(model):
        refuse(model, catalog.locate(model).config, figure.needs)
    fields = run | figure.run
    if isinstance(fields.get("corpus"), str):
        fields["corpus"] = CorpusSpec(name=fields["corpus"])
    try:
        return build_request(figure.question, model, params=figure.params, **fields)[0]
    except (ValueError, TypeError, AttributeError, UnfitField, UnknownField) as error:
        brief_error = str(error).splitlines()[0][:200]
        raise BadRequest(f"The figure's run {figure.run} is not one: {brief_error}") from error


def compare(
    model: str, figures: Iterable[Published], answer: Callable[[Request], Result], **run: Any
) -> Iterator[Checked]:
    """Yield the lines of the ledger, as they are computed; ``answer`` turns requests to results."""
    for figure in figures:
        try:
            yield check(figure, answer(request_for(figure, model, **run)))
        except PosKernelError as error:
            yield not_computed(figure, error)


def reproduce(
    model: str,
    figures: Iterable[Published] | None = None,
    *,
    engine: Engine | None = None,
    **run: Any,
) -> list[Checked]:
    """Return the ledger of a model, computing what is not in the store.

    A part of a model is compared with what was published for the whole one.

    Args:
        model: its name or directory.
        figures: published figures (default: those published for it).
        engine: the engine to use (default: a new one on the default store).
        run: fields of the run that the figures leave open (``corpus``, ``windows``, ...).
    """
    own = engine or Engine()

    def answer(request: Request) -> Result:
        found = own.result(request)
        assert found is not None  # no time limit was set
        return found

    try:
        return list(
            compare(
                model,
                figures_of(published_name(model)) if figures is None else figures,
                answer,
                **run,
            )
        )
    finally:
        if engine is None:
            own.close()
