"""Standard streams that are full, closed or of another encoding: a sentence or silence."""

import io
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from poskernel_core.cli import main as cli
from poskernel_core.cli.terminal import open_streams, say
from tests.support import ROOT

HELP, WRONG = "--help", "show nonsense demo-gpt2"
FULL = "Cannot write to standard output: No space left on device.\n"
STREAMS = {
    # the command, where its streams lead, the exit code, what it says
    "full": (HELP, ">/dev/full", 1, FULL),
    "closed": (HELP, ">&-", 0, ""),
    "nobody reads": (HELP, "| :", 0, ""),
    "errors full": (WRONG, "2>/dev/full", 2, ""),
    "errors closed": (WRONG, "2>&-", 2, ""),
    "all closed": (WRONG, "<&- >&- 2>&-", 2, ""),
}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize(("case", "unbuffered"), [("full", "1"), *((case, "") for case in STREAMS)])
def test_a_stream_that_takes_nothing(tmp_path, case, unbuffered):
    """No traceback, whether or not what is printed is collected first; the exit code stays."""
    command, where, code, told = STREAMS[case]
    line = f"set -o pipefail; {sys.executable} -m poskernel_core {command} {where}"
    environment = {**os.environ, "POSKERNEL_CACHE": str(tmp_path), "PYTHONUNBUFFERED": unbuffered}

    done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True)

    assert (code, b"", told.encode()) == (done.returncode, done.stdout, done.stderr)


def test_letters_that_an_encoding_lacks(monkeypatch):
    with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        open_streams()
        say("0.729 ± 0.037")
        stream.flush()
        assert b"0.729 \\xb1 0.037\n" == stream.buffer.getvalue()


def test_what_has_nothing_to_do_with_streams(monkeypatch, capsys):
    """A cancel is one word; an error of another file stays what it is."""
    monkeypatch.setattr(cli, "Store", Mock(side_effect=KeyboardInterrupt))
    assert 1 == cli.main(["models"])
    assert ("", "Cancelled.\n") == capsys.readouterr()
    monkeypatch.setattr(cli, "Store", Mock(side_effect=OSError(5, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error"):
        cli.main(["models"])
