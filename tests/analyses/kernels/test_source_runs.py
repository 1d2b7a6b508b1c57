"""The passes that the sources of queries stand on."""

import pytest

from poskernel_core.analyses.sources import SourceParams, source_runs
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import CorpusSpec, ModelSpec, RunSpec

RUN = RunSpec(
    model=ModelSpec(name="m", fingerprint="f"), corpus=CorpusSpec(fingerprint="c"),
    context=29, windows=1000, positions=(7, 28),
)  # fmt: skip


def test_one_token_without_a_position():
    with pytest.raises(BadRequest, match="one query position"):
        source_runs(RUN, SourceParams(source="token"), None)
