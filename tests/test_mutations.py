"""The list of deliberate breaks: each still meets the code that it breaks."""

import pytest

from tests.support.server import ROOT
from tools.mutations import BREAKS, CORE


@pytest.mark.parametrize("row", BREAKS, ids=lambda row: f"{row.file}: {row.what}")
def test_a_break_can_be_made(row):
    assert 1 == (ROOT / CORE / row.file).read_text("utf-8").count(row.old)
    assert row.new != row.old
    assert row.tests
    for name in row.tests.split():
        assert (ROOT / "tests" / f"test_{name}.py").is_file()


def test_no_break_is_listed_twice():
    assert len(BREAKS) == len({(row.file, row.old, row.new) for row in BREAKS})
    assert len(BREAKS) == len({row.what for row in BREAKS})
