"""One head's denominator along positions, in windows of the corpus and the user's texts."""

import re
from collections.abc import Sequence

import numpy as np

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.contextual_heads.denominators import Denominators, DenominatorsParams
from poskernel_core.analyses.contextual_heads.experiment import contents
from poskernel_core.analyses.contextual_heads.experiment.contextual import LayerRows
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.groups import first_in_equal_groups, groups_of
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.statistics.moments import Numbers

TITLE = 40
CALLED = {"denominator": "mean"} | {n: n for n in ("denominator_cv", "predicted_cv", "etc")}
"""Names of a layer's values -> names in this result."""


def denominators(subject: ExperimentContext, params: DenominatorsParams) -> Result:
    """Run windows at every position; see :class:`contextual_heads.denominators.Denominators`."""
    geometry = subject.model.geometry
    layer, head = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
    texts = first_in_equal_groups(subject.windows, params.first_windows)
    groups, token = groups_of(len(texts)), contents.token_id(subject, params.token)
    own = contents.own_texts(subject, params.own_texts, params.items)
    last = texts.shape[1] - 1
    queries = np.unique(np.linspace(min(params.skip + 1, last), last, params.n_positions).round())
    if own and max(len(ids) for ids in own.values()) <= queries[0]:
        raise BadRequest(f"Expected texts longer than {int(queries[0])} tokens: give more text.")
    kept: list[list[Numbers]] = []
    others: list[Numbers] = []
    for place, query in enumerate(queries.astype(int).tolist()):
        subject.progress(place, len(queries))
        rows = LayerRows(geometry.n_heads, len(texts), groups)
        windows = contents.destination_windows(texts, query, token)
        for some, seen in contents.last_rows(subject, windows, params.skip, (layer,), groups):
            rows.add(seen[0], some)
        kept.append([
            {called: np.asarray(values[name][head]) for name, called in CALLED.items()}
            for values in rows.values()
        ])  # fmt: skip
        of_own = np.full(len(own), np.nan)
        for number, ids in enumerate(own.values()):
            if len(ids) > query:
                one = contents.destination_windows(ids[None], query, token)
                ((_, seen),) = contents.last_rows(subject, one, params.skip, (layer,))
                of_own[number] = float(seen[0].denominator[0, 0, head])
        others.append({"denominator": rows.denominators[head]})
        others[-1] |= {"own_denominator": of_own} if own else {}
    return Denominators.estimated(
        subject,
        params,
        map(_along_queries, zip(*kept, strict=True)),
        _along_queries(others),
        coordinates={"query": queries.astype(int)},
        texts={"own_texts": [re.sub(r"\s+", " ", title)[:TITLE] for title in own]},
    )


def _along_queries(rows: Sequence[Numbers]) -> Numbers:
    return {name: np.stack([row[name] for row in rows], axis=-1) for name in rows[0]}
