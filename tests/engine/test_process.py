"""The parent's end of a process that speaks JSON lines."""

from poskernel_core.engine.process import Child
from poskernel_core.storage.store import Store
from tests.support.fake_worker import until


def test_what_is_heard_of_a_process_that_dies(tmp_path, workers):
    """Its whole events, not the one that was cut off, and once that there are no more."""
    heard = []
    child = Child("worker", Store(tmp_path), heard.append)
    (process,) = workers
    assert child.tell({"key": "a"})
    assert {"key": "a"} == process.hear()
    process.say("a", "running", done=1, total=2)
    process.mouth.write('{"key": "a", "sta')
    assert child.alive

    process.die()
    until(lambda: len(heard) > 1)
    assert not child.alive
    assert not child.tell({"key": "b"})
    child.close()
    assert process.stdout.closed

    assert [{"key": "a", "state": "running", "done": 1, "total": 2}, None] == heard
