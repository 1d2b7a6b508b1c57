"""The simulated readers of the benchmark and of the long trials."""

import pytest

from bench.reader import Lost, Reader
from bench.readers import crowd, memory_mb, percentile
from tests.soak.replicas import rise
from tests.support.server import run_alone


@pytest.mark.slow
def test_a_reader_sees_what_a_browser_sees(server):
    """And presses what is drawn."""

    async def read():
        async with Reader(server.url) as reader:
            opened = await reader.open(windows=50, head="L1H2")
            first = "L1H2 at n = 400" in reader.texts
            clicked = await reader.choose("L2H6")
            second = "L2H6 at n = 400" in reader.texts
            with pytest.raises(Lost, match="no head L9H9"):
                await reader.choose("L9H9")
            heads = len(reader.heads)
        async with Reader(server.url) as reader:
            await reader.open(page="head", windows=50, head="L1H2")
            await reader.press("Pin L1H2")
            pinned = set(reader.buttons)
            await reader.again()
            assert pinned == set(reader.buttons)
            assert not reader.waits
        return opened, clicked, first, second, heads, "Unpin L1H2" in pinned

    opened, clicked, *seen = run_alone(read())
    assert opened > 0 < clicked
    assert [True, True, 32, True] == seen


@pytest.mark.slow
def test_a_crowd_loses_nobody(server):
    visits = run_alone(crowd([server], 3, 2, 0.1, seed=0))

    assert [2, 2, 2] == [len(visit.clicks) for visit in visits]
    assert [""] * 3 == [visit.lost for visit in visits]
    assert memory_mb(server.pid) > 50


def test_a_rise_is_that_of_a_line():
    """From 100 to 110 and back to 105 by steps of 5: 4.8 % of the mean; a level one is flat."""
    assert rise([(0.0, 100.0), (5.0, 110.0), (10.0, 105.0)]) == pytest.approx(5 / 105)
    assert rise([(7.0, 50.0), (8.0, 50.0), (9.0, 50.0)]) == pytest.approx(0)


def test_no_server_is_a_lost_reader():
    with pytest.raises(Lost, match="no connection"):
        run_alone(Reader("http://127.0.0.1:9").open())


def test_percentiles():
    assert 2.0 == percentile([1.0, 2.0, 3.0], 50)
    assert 4.0 == percentile([4.0], 95)
    assert 5.0 == percentile([1.0, 5.0, 2.0], 100)
    assert 95.0 == percentile([*map(float, range(101))], 95)
