"""A model whose positions are a helix, and a pass of it over texts of one token each."""

import pytest

from poskernel_core.analyses.helix.formulas import STREAM_SUMS
from poskernel_core.data.made import repeated_windows
from tests.support import builders
from tests.support.passes import gather


@pytest.fixture(scope="session")
def constructed(tmp_path_factory):
    """Its mean stream is the helix itself; 5 texts of 53 positions."""
    path = builders.helix(tmp_path_factory.mktemp("helix") / "m")
    windows = repeated_windows(293, context=53, windows=5, avoid=0)
    return gather(path, windows, False, ("keys", "scores", *STREAM_SUMS))
