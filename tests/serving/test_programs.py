"""What the documentation tells programs to do: run word for word against a served dashboard."""

import json
import re
import shlex
import shutil
import subprocess
import sys

import httpx2
import psutil
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.support import ROOT, until
from tests.support.server import PATIENCE, run_alone, serve
from tests.support.server import environment as server_environment
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
    ours = shlex.join([sys.executable, "-m", "poskernel_core"])
    script = script.replace("poskernel models", f"echo; {ours} models")
    script = script.replace("poskernel show", f"echo; {ours} show")
    environment = server_environment(tmp_path / "cache") | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (0, "") == (done.returncode, done.stderr), done.stdout
    printed = [json.loads(line) for line in done.stdout.splitlines() if line[:1] in ("[", "{")]
    assert re.search("^demo-gpt2 .* learned", done.stdout, re.MULTILINE)
    assert ["demo-gpt2", "etc"] == [printed[0][1]["name"], printed[1]["name"]]
    assert {"layer": 2, "head": 6, "query": 400} == printed[2]["at"]
    assert 20 == printed[3]["run"]["windows"]
    assert printed[2] == printed[4]
    assert "# model: demo-gpt2" in (tmp_path / "sinks.csv").read_text("utf-8")


@pytest.mark.parametrize("entry", range(3))
def test_from_an_assistant(dashboard, tmp_path, entry):
    """By what is written into the settings of three clients."""
    text = [code for kind, code in BLOCK.findall(PAGE.read_text("utf-8")) if kind == "json"][entry]
    (servers,) = json.loads(text.replace(USUAL, dashboard)).values()
    told = servers["poskernel"]
    if "command" in told:
        assert "poskernel" == told["command"]
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "poskernel_core", *told["args"]],
            env=server_environment(tmp_path, shipped=True) | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    else:
        server = told["url"]

    async def described():
        async with Client(server) as client:
            arguments = {"model": "demo-gpt2", "head": "L2H6"}
            return await client.call_tool("describe_head", arguments)

    answer = json.loads(run_alone(described()).content[0].text)
    assert "previous-token head" in answer["verdict"]


def test_a_server_that_is_stopped_waits_for_no_stream(tmp_path):
    params = {"heads": "L0H0, L3H7", "loss_windows": 1000}
    asked = {"question": "ablate-heads", "model": "demo-gpt2", "params": params}
    with serve(tmp_path / "cache", tmp_path / "log", shipped=True) as started, httpx2.Client(
        base_url=f"{started.url}/api/v1/", timeout=PATIENCE
    ) as web:  # fmt: skip
        reply = web.post("answers", json=asked)
        assert 202 == reply.status_code
        with web.stream("GET", f"{reply.headers['location']}/events") as events:
            next(events.iter_lines())
            process = psutil.Process(started.pid)
            process.terminate()
            until(lambda: process.status() == psutil.STATUS_ZOMBIE, 60)


LIGHT = """
import sys

for name in ("torch", "transformers", "transformer_lens", "datasets", "streamlit", "starlette",
             "uvicorn", "prometheus_client", "scipy", "psutil"):
    sys.modules[name] = None  # as where it is not installed
"""


def test_from_python(dashboard, tmp_path):
    """Also where neither torch nor Streamlit is installed: the last line is drawn."""
    code = f"{LIGHT}{blocks('python', dashboard)}"
    code += "assert 0 < etc.lows['etc'] < etc.values['etc'] and layers['demo-gpt2'] == 4\n"
    code += "assert 'etc' in names\n"
    code = code.replace("server.view(", "drawn = server.view(")
    code += "assert 'Plotly' in drawn.html(library=False)\n"
    environment = server_environment(tmp_path / "cache") | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.splitlines()[-1].startswith("20 ")


def test_what_is_installed_for_it():
    """A part of what the server without torch has, in the same versions."""
    client, server = (
        {line for line in (ROOT / name).read_text("utf-8").splitlines() if "==" in line}
        for name in ("requirements-client.txt", "requirements-serving.txt")
    )
    apart = {line.partition("==")[0] for line in server - client}
    assert (set(), {"streamlit", "prometheus_client"}) == (client - server, apart)
