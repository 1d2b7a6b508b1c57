"""The simulated readers of the benchmark and of the long trials, and how the trials compare."""

import numpy as np
import pytest

from bench.reader import Lost, Reader
from bench.readers import crowd, memory_mb, percentile
from poskernel_core import Store
from tests.soak.__main__ import make
from tests.soak.replicas import rise, tracebacks, verdicts
from tests.soak.trial import Failed, Options, arrays, equality
from tests.support.alone import run_alone

OPTIONS = Options(seed=0, kills=1, windows=1, damages=1)


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


@pytest.mark.parametrize(
    ("leak", "peaks", "grows", "told"),
    [
        (5, 0, False, "worker flat (+8.6% of 575 MB), other not seen"),
        (8, 0, True, "worker GROWS (+12.8% of 620 MB), other not seen"),
        (0, 300, True, "MB), other not seen"),
    ],
)
def test_what_is_told_of_memory(leak, peaks, grows, told):
    """MB a minute over 500; peaks in two of three samples count.

    By hand: 8 MB a minute rise by 79.3 in 595 s, of 500 + 8 x 14.96.
    """
    times = np.arange(0, 1200, 5.0)
    busy = np.where(np.arange(len(times)) % 3 > 0, peaks * times / 1200, 0)
    memory = {"worker": [*zip(times, 500 + leak * times / 60 + busy, strict=True)]}
    said, steep = verdicts(memory, ["worker", "other"], 1200)
    assert said.endswith(told)
    assert grows == steep


def test_no_server_is_a_lost_reader():
    with pytest.raises(Lost, match="no connection"):
        run_alone(Reader("http://127.0.0.1:9").open())


def test_percentiles():
    assert 2.0 == percentile([1.0, 2.0, 3.0], 50)
    assert 4.0 == percentile([4.0], 95)
    assert 5.0 == percentile([1.0, 5.0, 2.0], 100)
    assert 95.0 == percentile([*map(float, range(101))], 95)


def test_arrays_are_compared_bit_by_bit(tmp_path):
    store = Store(tmp_path)
    store.put("a", {}, {"x": np.array([1.0, np.nan], np.float32), "y": np.arange(3)})
    whole = arrays(store)

    assert "2 of 2 arrays equal" == equality(whole, arrays(store))
    store.put("a", {}, {"x": np.array([np.nextafter(np.float32(1), 2), np.nan], np.float32),
                        "y": np.arange(3)})  # fmt: skip
    with pytest.raises(Failed, match="1 of 2 arrays equal"):
        equality(whole, arrays(store))
    for other in ({}, whole | {"more": np.arange(2)}):
        with pytest.raises(Failed):
            equality(whole, other)
    store.close()


def test_how_a_trial_ends():
    def well(options, folder):
        assert folder.is_dir()
        return "fine"

    def failed(options, folder):
        raise Failed("3 of 4\n| equal")

    def broken(options, folder):
        return 1 / 0

    ends = [make(trial, OPTIONS) for trial in (well, failed, broken)]

    assert ["well", "FAILED", "FAILED"] == [ended for ended, _, _ in ends]
    said = [found for _, _, found in ends]
    assert ["fine", "Failed: 3 of 4 \\| equal"] == said[:2]
    assert said[2].startswith("ZeroDivisionError")


def test_a_traceback_is_told_to_its_end(tmp_path):
    log, quiet = tmp_path / "worker.log", tmp_path / "server.log"
    quiet.write_text("Ready.\n")
    places = "".join(f'  File "{at}.py", line {at}\n    code\n    ^^^^\n' for at in range(50))
    log.write_text(f"Traceback (first)\nOld: one\nTraceback (last)\n{places}KeyError: 7\nafter\n")

    tracebacks(quiet, tmp_path / "none.log")
    with pytest.raises(Failed) as told:
        tracebacks(quiet, log)
    said = str(told.value)
    assert "worker.log has 2 tracebacks" in said
    assert said.endswith('File "49.py", line 49: KeyError: 7')
    assert 'the last: File "0.py", line 0; File "1.py"' in said
