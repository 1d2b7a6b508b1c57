"""Descriptions of attached models that several processes write, and one that is being written."""

import shutil
import subprocess
import sys

import pytest

from poskernel_core.models import attached, stored
from tests.support.server import ROOT, environment

CHANGES = 50
WRITER = """
import sys, time
from pathlib import Path
from poskernel_core.models import attached
from tests.models.test_attached_together import CHANGES, about

act, me, other = sys.argv[1], *map(Path, sys.argv[2:])
write = attached.write_file
attached.write_file = lambda *given: (time.sleep(0.002), write(*given))
me.touch()
while not other.exists():
    time.sleep(0.001)
for i in range(CHANGES):
    if act == "describe":
        attached.describe(about({f"{me.name}-{i}": {"fingerprint": f"{me.name}{i}", "step": None}}))
    elif act == "change":
        attached.change("mine", **{f"{me.name}-{i}": i})
    else:
        attached.forget("mine", [i])
"""


def about(versions):
    told = {"versions": versions, "word": " the"}
    return {"model": {"name": "mine"}, "config": {}, "geometry": {}, "attached": told}


@pytest.mark.parametrize("acts", [("describe", "describe"), ("change", "change"),
                                  ("forget", "describe"), ("forget", "change")])  # fmt: skip
def test_no_change_is_lost(tmp_path, monkeypatch, acts):
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    steps = {f"step-{i}": {"fingerprint": f"{i}", "step": i} for i in range(CHANGES + 1)}
    attached.describe(about(steps))
    places = [tmp_path / "one", tmp_path / "two"]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, act, *map(str, paths)],
            cwd=ROOT,
            env=environment(tmp_path / "cache"),
        )
        for act, paths in zip(acts, (places, places[::-1]), strict=True)
    ]
    assert [0, 0] == [each.wait(120) for each in writers]

    kept = attached.description("mine")
    named = [f"{place.name}-{i}" for place in places for i in range(CHANGES)]
    written = {*kept["attached"]["versions"], *kept}.intersection(named)
    wanted = {each for each in named if acts[each.startswith("two")] != "forget"}
    assert wanted == written
    left = {f"step-{CHANGES}"} if "forget" in acts else {*steps}
    assert left == {*kept["attached"]["versions"]} - wanted


def test_a_model_is_there_while_its_description_is_written(tmp_path):
    """An unfinished file, also of a process that was killed, takes nothing away."""
    folder = tmp_path / "mine"
    shutil.copytree(stored.RESULTS / "smollm2-135m-instruct-q4", folder)
    (folder / ".0123456789abcdef.partial").write_bytes(b"{")
    assert "smollm2-135m-instruct-q4" == stored.read(folder).spec.name
