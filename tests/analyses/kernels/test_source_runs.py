"""The passes that the sources of queries stand on."""

import pytest

from poskernel_core.analyses.sources import SourceParams, source_runs
from poskernel_core.common.specs import QUERIES_PER_POSITION, CorpusSpec, ModelSpec, RunSpec
from tests.support.refusals import refused

RUN = RunSpec(
    model=ModelSpec(name="m", fingerprint="f"), corpus=CorpusSpec(fingerprint="c"),
    context=29, windows=1000, positions=(7, 28),
)  # fmt: skip


TOKEN = {"destination": " of", "gather": ("queries",), "windows": QUERIES_PER_POSITION}
TEXT = {
    "corpus": CorpusSpec(name="text", text="In the beginning"), "windows": 1,
    "queries_per_position": 1, "positions": tuple(range(29)), "gather": ("keys", "queries"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("params", "query", "own"),
    [
        ({}, 7, None),
        ({"source": "token", "token": " of"}, 7,
         TOKEN | {"context": 8, "positions": (7,), "start_token": True}),
        ({"source": "token", "token": " of"}, 0,
         TOKEN | {"context": 1, "positions": (0,), "start_token": False}),
        ({"source": "text", "text": "In the beginning"}, 7, TEXT),
    ],
)  # fmt: skip
def test_runs(params, query, own):
    queries = {} if own is None else {"queries": RUN.model_copy(update=own)}
    assert {"main": RUN, **queries} == source_runs(RUN, SourceParams(**params), query)


@pytest.mark.parametrize(
    ("params", "query", "words"),
    [({"source": "token"}, None, "one query position"),
     ({"source": "text", "text": " "}, 7, "Expected a text")],
)  # fmt: skip
def test_refused(params, query, words):
    with refused(words):
        source_runs(RUN, SourceParams(**params), query)
