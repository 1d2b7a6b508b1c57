"""What the documentation tells programs to do: run word for word against a served dashboard."""

import json
import shutil
import subprocess

import pytest

from tests.support import ROOT
from tests.support.server import serve
from tests.test_docs import BLOCK

PAGE = ROOT / "docs" / "how-to" / "programs.md"
USUAL = "http://localhost:8501"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory):
    """A server with what comes with the project, which computes too."""
    root = tmp_path_factory.mktemp("programs")
    with serve(root / "cache", root / "server.log", shipped=True) as started:
        yield started.url
    assert "Traceback" not in (root / "server.log").read_text("utf-8")


def blocks(kind, url):
    """The code of the page in a language, for a server at another address."""
    found = [code for each, code in BLOCK.findall(PAGE.read_text("utf-8")) if each == kind]
    assert found
    return "".join(found).replace(USUAL, url)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_from_a_shell(dashboard, tmp_path):
    script = blocks("sh", dashboard).replace("curl -s", "echo; curl -sS --fail-with-body")
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (0, "") == (done.returncode, done.stderr), done.stdout
    printed = [json.loads(line) for line in done.stdout.splitlines() if line]
    assert ["demo-gpt2", "etc"] == [printed[0][1]["name"], printed[1]["name"]]
    assert {"layer": 2, "head": 6, "query": 400} == printed[2]["at"]
    assert 20 == printed[3]["run"]["windows"]
    assert "# model: demo-gpt2" in (tmp_path / "sinks.csv").read_text("utf-8")
