"""Sources of a kernel's queries: sampled windows, one text, or one fixed token."""

from collections.abc import Mapping
from typing import Literal, TypeVar

import numpy as np
from pydantic import Field, field_validator

from poskernel_core.analyses.base import (
    OWN_WINDOWS,
    Experiment,
    Params,
    SkipParams,
    Statistics,
    TokenParams,
)
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import (
    MAX_TEXT_CHARACTERS,
    QUERIES_PER_POSITION,
    CorpusSpec,
    RunSpec,
)
from poskernel_core.common.views import queries_of
from poskernel_core.data.texts import check_offered


class TextParams(Params):
    """Parameters that name one text: typed, or an item of a corpus."""

    text: str | None = Field(
        None, max_length=MAX_TEXT_CHARACTERS, description="a text or prompt, as typed"
    )
    text_corpus: str = Field("bible", description="corpus of a named text")
    text_item: str | None = Field(None, description="name of the text, such as 'Genesis 24'")

    @field_validator("text_corpus")
    @classmethod
    def _offered(cls, name: str) -> str:
        check_offered(name)
        return name


class SourceParams(SkipParams, TextParams, TokenParams):
    """Parameters that name the source of the queries ``q_n``."""

    source: Literal["mean", "text", "token"] = Field(
        "mean", description="queries: mean over sampled windows, one text's own, or one fixed token"
    )


def check_query(query: int, skip: int, context: int) -> None:
    """Check that a query position is in the context and sees keys that are not skipped."""
    if not skip <= query < context:
        raise BadRequest(
            f"Expected a query position from {skip} (the skipped keys) to {context - 1}, got "
            f"{query}."
        )


def source_runs(run: RunSpec, params: SourceParams, query: int | None) -> Mapping[str, RunSpec]:
    """Return the passes needed: the run, and for a text or a token a second, small pass."""
    if params.source == "mean":
        return {"main": run}
    if params.source == "text":
        return {"main": run, "queries": text_run(run, params)}
    if query is None:
        raise BadRequest(
            "A fixed token's queries are taken at one query position: choose one, or "
            "another source."
        )
    return {
        "main": run,
        "queries": run.model_copy(
            update={
                "context": query + 1,
                "start_token": run.start_token and query > 0,
                "windows": min(run.windows, QUERIES_PER_POSITION),
                "positions": (query,),
                "gather": ("queries",),
                "destination": params.token,
            }
        ),
    }


def text_run(run: RunSpec, params: TextParams, *, whole: bool = False) -> RunSpec:
    """Return the pass over one text: keys and queries of every position.

    With ``whole`` a typed text longer than the context is an error; otherwise it is truncated.
    """
    typed = bool((params.text or "").strip())
    if not typed and params.text_item is None:
        raise BadRequest(
            "Expected a text, got none: give one, or name one of a corpus, such as Genesis 24."
        )
    corpus = (
        CorpusSpec(name="text", text=params.text, whole=whole)
        if typed
        else CorpusSpec(name=params.text_corpus, item=params.text_item)
    )
    return run.model_copy(
        update={
            "corpus": corpus,
            "windows": 1,
            "positions": tuple(range(run.context)),
            "queries_per_position": 1,
            "gather": ("keys", "queries"),
        }
    )


T = TypeVar("T", bound=TextParams)


class OnText(Experiment[T]):
    """An experiment on one text alone; a text longer than the context is an error."""

    ignores = Experiment.ignores | OWN_WINDOWS | {"corpus", "seed"}

    def with_params(self, run: RunSpec, params: T) -> RunSpec:
        """Return the run of the text alone."""
        return text_run(run, params, whole=True).model_copy(update={"positions": (0,)})

    def default_query(self, context: int) -> int:
        """Return -1 where there is a query to choose: the last token of the text."""
        return -1 if "query" in self.params.model_fields else super().default_query(context)


def query_positions(statistics: Statistics) -> np.ndarray:
    """Return the positions at which the source has queries."""
    view = statistics.get("queries", statistics["main"])
    return np.array(view.header.positions, dtype=np.int64)


def queries_at(statistics: Statistics, layer: int, query: int) -> np.ndarray:
    """Return the source's queries of one layer at one position, ``[head, sample, d]``."""
    places = np.flatnonzero(query_positions(statistics) == query)
    if len(places) == 0:
        has = query_positions(statistics)
        raise BadRequest(
            f"No query at position {query}: this source has {len(has)}, from {has[0]} to "
            f"{has[-1]}; choose one of those positions, or a longer text."
        )
    view = statistics.get("queries", statistics["main"])
    return queries_of(view, layer, int(places[0]))


def attended_by_text(statistics: Statistics, layer: int) -> np.ndarray | None:
    """Return the text's own keys ``[kv, key, d]`` where the source is a text, else None."""
    view = statistics.get("queries")
    return None if view is None else view.layer(layer).get("mean_keys")
