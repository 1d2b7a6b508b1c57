"""``make soak``: long trials one after another, and a table of how they ended.

The exit code is 1 if any trial failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.damaged import damaged
from tests.soak.kills import command_killed, worker_killed
from tests.soak.replicas import replicas
from tests.soak.trial import Options, Trial
from tests.support.server import environment

TRIALS: dict[str, Trial] = {
    "worker-killed": worker_killed,
    "command-killed": command_killed,
    "damaged": damaged,
    "replicas": replicas,
}


def main() -> int:
    """Make the trials; return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__)
    parser.add_argument("--trials", default=",".join(TRIALS), help="which, with commas between")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--windows", type=int, default=200, help="windows of a pass that is killed")
    parser.add_argument("--damages", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=20, help="of visits to two replicas")
    given = vars(parser.parse_args())
    names = given.pop("trials").split(",")
    unknown = [name for name in names if name not in TRIALS]
    if unknown:
        parser.error(f"no trial {unknown[0]!r}: expected some of {', '.join(TRIALS)}")
    options = Options(**given)
    ours = environment(Path(tempfile.gettempdir()))
    os.environ.clear()
    os.environ.update(ours)
    rows = [(name, *make(TRIALS[name], options)) for name in names]
    print("\n| trial | ended | seconds | found |\n|---|---|---|---|")
    for name, ended, seconds, found in rows:
        print(f"| {name} | {ended} | {seconds:.0f} | {found} |")
    return int(any(ended == "FAILED" for _, ended, _, _ in rows))


def make(trial: Trial, options: Options) -> tuple[str, float, str]:
    """Make one trial; return how it ended, after how many seconds, and what it found."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            ended, found = "well", trial(options, Path(folder))
        except Exception as error:
            ended, found = "FAILED", f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - began
    found = " ".join(found.split()).replace("|", "\\|")
    print(f"{trial.__name__}: {ended} after {seconds:.0f} s: {found}", file=sys.stderr)
    return ended, seconds, found


if __name__ == "__main__":
    sys.exit(main())
