"""Free memory: the least of the machine's and of what control groups allow, in both versions."""

from types import SimpleNamespace

import psutil
import pytest

from poskernel_core.common.memory import free_memory

GROUPS = {
    # version: line of /proc/self/cgroup, place, names of bound, use and counters, what is no bound
    2: ("0::/a/b", "", "memory.max", "memory.current", "", "max"),
    1: ("4:cpu,memory:/a/b", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_",
        str(2**63 - 4096)),
}  # fmt: skip


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 900 free bytes whose control groups are made by a call."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=900))

    def make(version, **groups):
        line, mount, bound, taken, prefix, none = GROUPS[version]
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(f"9:pids:/elsewhere\n{line}\n")
        for name, (most, used, files) in groups.items():
            folder = tmp_path / "sys/fs/cgroup" / mount / {"top": "", "a": "a", "b": "a/b"}[name]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / bound).write_text(f"{most or none}\n")
            (folder / taken).write_text(f"{used}\n")
            stat = f"anon 7\n{prefix}active_file {files}\n{prefix}inactive_file 1\n"
            (folder / "memory.stat").write_text(stat)
        return tmp_path

    return make


CASES = {
    # what the groups say (None: no bound), and the bytes that are free of the machine's 900
    "the group of the process": ({"b": (500, 300, 20)}, 500 - 300 + 20 + 1),
    "the least counts": ({"top": (None, 1, 0), "a": (400, 350, 0), "b": (500, 100, 0)}, 51),
    "the path of a host": ({"top": (500, 300, 0)}, 201),
    "more than the machine has": ({"b": (10**12, 0, 0)}, 900),
    "nothing is left": ({"b": (100, 300, 0)}, 0),
}


@pytest.mark.parametrize("version", GROUPS)
@pytest.mark.parametrize("case", CASES)
def test_bounds_of_groups(machine, version, case):
    groups, expected = CASES[case]
    assert expected == free_memory(machine(version, **groups))


def test_a_group_that_does_not_count_files(machine):
    root = machine(2, b=(500, 300, 20))
    (root / "sys/fs/cgroup/a/b/memory.stat").unlink()
    assert 200 == free_memory(root)


def test_no_groups(machine, tmp_path):
    assert 900 == free_memory(tmp_path)
