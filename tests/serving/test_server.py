"""The dashboard as a process: ``poskernel serve`` from any folder, ``pk.serve`` in a notebook."""

import functools
import http.server
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path

import pytest

import poskernel_core as pk
from poskernel_core import server as served
from poskernel_core.cli import main as cli
from poskernel_core.cli.main import PROGRAM
from poskernel_core.common.errors import BadRequest, ComputeFailed
from poskernel_core.common.folders import default_directory
from poskernel_core.common.modules import command
from tests.support import until
from tests.support.server import PATIENCE, ROOT, environment, free_port, running

# pytest runs tests of one browser together: where all have it, module fixtures are made once.
pytestmark = pytest.mark.usefixtures("browser_name")


def test_without_a_command(capsys):
    assert 0 == cli.main([])
    out, err = capsys.readouterr()
    lines = [line.split()[1:] for line in out.splitlines() if line.startswith("  poskernel ")]
    assert "" == err
    assert ["serve", "show", "precompute"] == [words[0] for words in lines]
    assert {words[0] for words in lines} <= PROGRAM.commands.keys()
    assert 0 == cli.main(["--version"])
    assert f"poskernel {pk.__version__}\n" == capsys.readouterr().out


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as door:
        yield str(door.getsockname()[1])


REFUSED = {
    ("--port", "99999"): "'--port': 99999 is not in the range 1<=x<=65535",
    ("--port", "TAKEN", "--host", "127.0.0.1"): "Cannot listen at port TAKEN (",
    ("--host", "192.0.2.1", "--port", "8501"): "Cannot listen at 192.0.2.1 (",
    ("--host", ""): "'--host': expected a host name or an address",
    ("--model", "/no/such/model"): "'/no/such/model' has no config.json",
    ("--model", "demo-gpt2,demo-attn-2l"): "expected a model's name or directory",
    ("--model", "no-such-model"): "'no-such-model' is not on this machine",
    ("--cache", "FILE"): "The store at 'FILE' cannot be used",
    ("demo-gpt2",): "demo-gpt2",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_it_refuses(words, taken, tmp_path, capsys, monkeypatch):
    for name in ("MODELS", "CACHE", "OPEN", "PUBLIC", "READ_ONLY"):
        monkeypatch.setenv(f"POSKERNEL_{name}", str(tmp_path / "cache") if name == "CACHE" else "")
    file = tmp_path / "file"
    file.write_text("")

    def filled(text):
        return text.replace("TAKEN", taken).replace("FILE", str(file))

    assert 2 == cli.main(["serve", *map(filled, words)])
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert filled(REFUSED[words]) in err


def test_a_browser_is_opened(tmp_path):
    """At an address of IPv6, below a base path."""
    host, base, told = "::1", "/heads", "[::1]"
    opener, opened = tmp_path / "xdg-open", tmp_path / "opened"
    opener.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.part; mv {opened}.part {opened}\n')
    opener.chmod(0o755)
    port, log = free_port(), tmp_path / "log"
    ours = environment(tmp_path / "elsewhere") | {"PYTHONPATH": str(ROOT)}
    ours["PATH"] = f"{tmp_path}{os.pathsep}{ours['PATH']}"
    ours["STREAMLIT_SERVER_BASE_URL_PATH"] = base
    serve = command("poskernel_core", "serve", "--open", "--model", "demo-attn-2l")
    serve += ["--port", str(port), "--host", host, "--cache", "store", "--read-only", "--public"]
    with running(serve, f"http://{told}:{port}{base}/health", log, ours, tmp_path):
        until(opened.exists, PATIENCE)

    assert f"http://{told}:{port}{base}/?model=demo-attn-2l" == opened.read_text()
    assert opened.read_text() in log.read_text()
    assert (tmp_path / "store" / "cache.db").is_file()
    assert not (tmp_path / "elsewhere").exists()


@pytest.fixture(scope="module")
def notebook_server(tmp_path_factory):
    """The server that ``pk.serve`` starts on a store of its own, ended after the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSKERNEL_CACHE", str(tmp_path_factory.mktemp("store")))
        patch.setenv("POSKERNEL_SHIPPED", "1")
        patch.delenv("POSKERNEL_ADDRESS", raising=False)
        patch.setattr(served, "DEFAULT_PORT", free_port())  # somebody's own may be at the usual one
        shown = pk.serve("head", model="demo-gpt2", head="L2H6")
        yield shown
        shown.stop()
    assert shown.process.poll() is not None


@pytest.mark.slow
def test_one_server_a_process(notebook_server):
    again = pk.serve(height=300)

    assert "/head?model=demo-gpt2&head=L2H6" == notebook_server.place
    assert again.process is notebook_server.process
    assert f'src="{notebook_server.address}/" title="PosKernel" width="100%" height="300"' in (
        again._repr_html_()
    )


@pytest.mark.slow
@pytest.mark.browser
def test_the_frame_of_a_notebook(notebook_server, tmp_path, page):
    shown = pk.serve(head="L2H6")
    assert shown.process is notebook_server.process
    (tmp_path / "index.html").write_text(shown._repr_html_(), encoding="utf-8")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as notebook:
        threading.Thread(target=notebook.serve_forever, daemon=True).start()
        page.goto(f"http://localhost:{notebook.server_address[1]}/index.html")
        head = page.frame_locator("iframe").locator("[role=gridcell][data-name=L2H6]").first
        head.wait_for(timeout=PATIENCE * 1000)
        notebook.shutdown()

    assert head.is_visible()


@pytest.mark.slow
def test_colab(notebook_server, monkeypatch):
    """Its own way is taken to a port that no browser reaches; elsewhere the HTML is taken."""
    with pytest.raises(NotImplementedError):
        notebook_server._ipython_display_()
    shown = []
    output = types.SimpleNamespace(
        serve_kernel_port_as_iframe=lambda port, path, height: shown.append((port, path, height))
    )
    monkeypatch.setitem(sys.modules, "google.colab", types.SimpleNamespace(output=output))
    notebook_server._ipython_display_()

    port = int(notebook_server.address.rpartition(":")[2])
    assert [(port, notebook_server.place, 800)] == shown


@pytest.mark.slow
def test_one_that_is_there(notebook_server, server, monkeypatch, capsys):
    """By its address, or at the usual port if it has our store and may be shown in notebooks."""
    ours = notebook_server.address
    given = pk.serve(address=f"{ours}/")
    with monkeypatch.context() as patch:
        patch.setenv("POSKERNEL_ADDRESS", ours)
        for found in (given, pk.serve()):
            assert (ours, None) == (found.address, found.process)
            found.stop()
    assert served.answers(ours)

    monkeypatch.setattr(served, "started", [])
    for url, cache, other in (
        (ours, None, ""),
        (ours, "elsewhere", "has another store than elsewhere"),
        (server.url, str(server.cache), "may not be shown in notebooks"),
    ):
        monkeypatch.setattr(served, "DEFAULT_PORT", int(url.rpartition(":")[2]))
        if cache:
            monkeypatch.setenv("POSKERNEL_CACHE", cache)
        usual = f"http://localhost:{served.DEFAULT_PORT}"
        assert served.answers(usual)
        assert (not other) is (served.find() is not None)
        told = f"The dashboard at {usual} {other}: another one is started.\n"
        assert (told if other else "") == capsys.readouterr().err


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers as a program might that is no dashboard."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Security-Policy", "frame-ancestors http://localhost:*")
        self.end_headers()
        self.wfile.write(b'{"status": "ok", "store": "writable", "version": "1.0.0"}')


def test_a_stranger_at_the_usual_port(monkeypatch):
    monkeypatch.setattr(served, "started", [])
    with http.server.HTTPServer(("localhost", 0), Stranger) as stranger:
        threading.Thread(target=stranger.handle_request, daemon=True).start()
        monkeypatch.setattr(served, "DEFAULT_PORT", stranger.server_port)
        assert served.find() is None


@pytest.fixture
def homeless(monkeypatch, tmp_path):
    """A user without an account and without a home, and where temporary files go."""
    for name in ("HOME", "POSKERNEL_CACHE"):
        monkeypatch.setenv(name, "")  # what it was comes back after the test
        monkeypatch.delenv(name)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_without_a_home(homeless, capsys):
    """The results go to a temporary folder, which is told once."""
    found = default_directory()

    assert homeless == found.parent
    assert found == default_directory() == Path.home()
    told = f"Results are kept in {found}, a temporary folder: set POSKERNEL_CACHE to keep them.\n"
    assert told == capsys.readouterr().err


def test_a_dashboard_of_a_program_without_a_home(homeless, monkeypatch):
    """Streamlit reads its settings below the home before it runs anything of ours."""
    given, popen = [], subprocess.Popen

    def start(*_, env, **more):
        given.append(env)
        return popen([sys.executable, "-c", ""])

    monkeypatch.setattr(served.subprocess, "Popen", start)
    monkeypatch.setattr(served, "_asked", lambda url: {} if given else None)
    monkeypatch.setattr(served, "started", [])
    served.serve().stop()
    (env,) = given
    assert str(homeless) == os.path.dirname(env["HOME"])
    assert env["HOME"] == env["POSKERNEL_CACHE"]


SETPRIV = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
for each in ("inh-caps", "ambient-caps", "bounding-set"):
    SETPRIV.append(f"--{each}=-all,+dac_read_search")  # may read the checkout, wherever it is


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("setpriv") or os.getuid() != 0, reason="only root can become another user"
)
@pytest.mark.parametrize("given", ["poskernel serve", "make app"])
def test_a_user_without_an_account(tmp_path, given):
    """In a folder that cannot be written, without a home: the dashboard is there."""
    recipe = r"^app:.*\n\t@\$\(BIN\)/python -m (.*) \$\(APP_ARGS\)$"
    (made,) = re.findall(recipe, (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    words = made.split() if given == "make app" else ["poskernel_core", "serve"]
    port, log = free_port(), tmp_path / "log"
    tmp_path.chmod(0o777)
    ours = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    serve = [*SETPRIV, *command(*words, "--port", str(port))]
    with running(serve, f"http://localhost:{port}/health", log, ours, "/"):
        pass
    told = log.read_text().split("\n\n")[0].strip()
    assert told.startswith(f"Results are kept in {tmp_path}/poskernel-")
    assert "Traceback" not in log.read_text()


def test_nobody_there(monkeypatch):
    with pytest.raises(BadRequest, match="none answers: start it with 'poskernel serve'"):
        pk.serve(address=f"http://localhost:{free_port()}")
    with pytest.raises(BadRequest, match="the address to be that of a dashboard"):
        pk.serve(address="localhost:8501")
    monkeypatch.setenv("POSKERNEL_MODELS", "/no/such/model")
    monkeypatch.setattr(served, "started", [])
    monkeypatch.setattr(served, "DEFAULT_PORT", free_port())
    with pytest.raises(ComputeFailed, match="Expected POSKERNEL_MODELS to name"):
        pk.serve()
