"""The passes that the sources of queries stand on."""

import pytest

from poskernel_core.analyses.sources import SourceParams, source_runs
from poskernel_core.common.specs import QUERIES_PER_POSITION, CorpusSpec, ModelSpec, RunSpec
from tests.support.refusals import refused

RUN = RunSpec(
    model=ModelSpec(name="m", fingerprint="f"), corpus=CorpusSpec(fingerprint="c"),
    context=29, windows=1000, positions=(7, 28),
)  # fmt: skip


def test_of_the_mean():
    assert {"main": RUN} == source_runs(RUN, SourceParams(), 7)


@pytest.mark.parametrize(("query", "start"), [(7, True), (0, False)])
def test_of_one_token(query, start):
    runs = source_runs(RUN, SourceParams(source="token", token=" of"), query)
    own = {
        "destination": " of", "context": query + 1, "positions": (query,), "gather": ("queries",),
        "windows": QUERIES_PER_POSITION, "start_token": start,
    }  # fmt: skip

    assert {"main": RUN, "queries": RUN.model_copy(update=own)} == runs


def test_one_token_without_a_position():
    with refused("one query position"):
        source_runs(RUN, SourceParams(source="token"), None)


def test_of_one_text():
    runs = source_runs(RUN, SourceParams(source="text", text="In the beginning"), 7)
    own = {
        "corpus": CorpusSpec(name="text", text="In the beginning"), "windows": 1,
        "queries_per_position": 1, "positions": tuple(range(29)), "gather": ("keys", "queries"),
    }  # fmt: skip

    assert {"main": RUN, "queries": RUN.model_copy(update=own)} == runs


def test_one_text_without_a_text():
    with refused("Expected a text"):
        source_runs(RUN, SourceParams(source="text", text=" "), 7)
