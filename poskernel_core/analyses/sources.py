"""Where a kernel's queries come from: sampled texts, one text of the reader's, one fixed token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import SkipParams
from poskernel_core.config import MAX_TEXT_CHARACTERS, SAMPLES_PER_POSITION, CorpusSpec, RunSpec
from poskernel_core.errors import BadRequest
from poskernel_core.views import StatisticsView

__all__ = ["SourceParams", "attended_by_text", "queries_at", "query_positions", "source_runs"]


class SourceParams(SkipParams):
    """Parameters that name the source of the queries ``q_n`` (definitions, section 1)."""

    source: Literal["mean", "text", "token"] = Field(
        "mean", description="queries: mean over sampled texts, one text's own, or one fixed token"
    )
    text: str | None = Field(
        None, max_length=MAX_TEXT_CHARACTERS, description="the text, for source text"
    )
    text_corpus: str = Field("bible", description="corpus of a named text, for source text")
    text_item: str | None = Field(None, description="name of the text, such as 'Genesis 24'")
    token: str = Field(" the", min_length=1, max_length=64, description="one token of the model")


def source_runs(run: RunSpec, params: SourceParams, query: int | None) -> Mapping[str, RunSpec]:
    """Return the passes needed: the run, and for a text or a token a small one of its own.

    Raises:
        BadRequest: a fixed token without a query position, or a text source without a text.
    """
    if params.source == "mean":
        return {"main": run}
    if params.source == "text":
        return {"main": run, "queries": _text_run(run, params)}
    if query is None:
        raise BadRequest(
            "A fixed token's queries are taken at one query position: choose one (--query 400), "
            "or another source."
        )
    return {
        "main": run,
        "queries": run.model_copy(
            update={
                "context": query + 1,
                "start_token": run.start_token and query > 0,
                "windows": min(run.windows, SAMPLES_PER_POSITION),
                "positions": (query,),
                "gather": ("queries",),
                "destination": params.token,
            }
        ),
    }


def _text_run(run: RunSpec, params: SourceParams) -> RunSpec:
    if params.text is None and params.text_item is None:
        raise BadRequest(
            "Source 'text' needs a text: give one (--text '...'), or name one of a corpus "
            "(--text-item 'Genesis 24')."
        )
    corpus = (
        CorpusSpec(name="text", text=params.text)
        if params.text is not None
        else CorpusSpec(name=params.text_corpus, item=params.text_item)
    )
    return run.model_copy(
        update={
            "corpus": corpus,
            "windows": 1,
            "positions": tuple(range(run.context)),
            "samples": 1,
            "gather": ("keys", "queries"),
        }
    )


def query_positions(statistics: Mapping[str, StatisticsView]) -> np.ndarray:
    """Return the positions at which the source has queries."""
    view = statistics.get("queries", statistics["main"])
    return np.array(view.header["positions"], dtype=np.int64)


def queries_at(statistics: Mapping[str, StatisticsView], layer: int, query: int) -> np.ndarray:
    """Return the source's queries of one layer at one position, ``[head, sample, d]``.

    Raises:
        BadRequest: the source has no query there.
    """
    places = np.flatnonzero(query_positions(statistics) == query)
    if len(places) == 0:
        has = query_positions(statistics)
        raise BadRequest(
            f"No query at position {query}: this source has {len(has)}, from {has[0]} to "
            f"{has[-1]}; choose one of those positions, or a longer text."
        )
    view = statistics.get("queries", statistics["main"])
    return view.layer(layer)["queries"][places[0]]


def attended_by_text(statistics: Mapping[str, StatisticsView], layer: int) -> np.ndarray | None:
    """Return the text's own keys ``[kv, key, d]`` where the source is a text, else None."""
    view = statistics.get("queries")
    return None if view is None else view.layer(layer).get("mean_keys")
