"""One head's denominator along positions, in windows of the corpus and the reader's texts."""

from __future__ import annotations

import re

import numpy as np

from poskernel_core.analyses.base import Progress, Statistics, Subject
from poskernel_core.analyses.contextual_heads.denominators import Denominators, DenominatorsParams
from poskernel_core.analyses.contextual_heads.run.contents import (
    destination_windows,
    last_rows,
    own_texts,
    token_id,
)
from poskernel_core.analyses.contextual_heads.run.contextual import LayerRows
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result

__all__ = ["denominators"]

TITLE = 40


def denominators(
    subject: Subject, statistics: Statistics, params: DenominatorsParams, progress: Progress
) -> Result:
    """Run every window at every position; see :class:`~poskernel_core.analyses.Denominators`.

    Raises:
        BadRequest: no such head or text, or the token is not one of the model.
    """
    main = statistics["main"]
    geometry = subject.model.geometry
    layer, head = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
    texts, token = subject.windows[: params.first_windows], token_id(subject, params.token)
    own = own_texts(subject, params.own_texts, params.items)
    last = texts.shape[1] - 1
    queries = np.unique(np.linspace(min(params.skip + 1, last), last, params.n_positions).round())
    if own and max(len(ids) for ids in own.values()) <= queries[0]:
        raise BadRequest(f"Expected texts longer than {int(queries[0])} tokens: give more text.")
    kept: list[dict[str, np.ndarray]] = []
    for place, query in enumerate(queries.astype(int).tolist()):
        progress(place, len(queries))
        rows = LayerRows(geometry.n_heads, len(texts))
        windows = destination_windows(texts, query, token)
        for some, seen in last_rows(subject, main, windows, params.skip, (layer,)):
            rows.add(seen[0], some)
        found = {name: np.asarray(array[head]) for name, array in rows.values().items()}
        found |= {"mean": found["denominator"], "denominator": rows.denominators[head]}
        found["own_denominator"] = np.full(len(own), np.nan)
        for number, ids in enumerate(own.values()):
            if len(ids) > query:
                one = destination_windows(ids[None], query, token)
                ((_, seen),) = last_rows(subject, main, one, params.skip, (layer,))
                found["own_denominator"][number] = float(seen[0].denominator[0, head])
        kept.append(found)
    return _result(params, kept, queries.astype(int), list(own))


def _result(
    params: DenominatorsParams,
    kept: list[dict[str, np.ndarray]],
    queries: np.ndarray,
    own: list[str],
) -> Result:
    found = {name: np.stack([each[name] for each in kept], axis=-1) for name in kept[0]}
    names = [value.name for value in Denominators.values if own or value.name != "own_denominator"]
    return Denominators.result(
        params,
        {name: found[name] for name in names},
        {"denominator_cv": found["denominator_cv_error"], "mean": found["denominator_error"]},
        coordinates={"query": queries},
        texts={"own_texts": [re.sub(r"\s+", " ", title)[:TITLE] for title in own]},
    )
