"""Locate, start and find dashboard servers, and show one in a notebook."""

from __future__ import annotations

import atexit
import html
import json
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from poskernel_core import __version__
from poskernel_core.common.errors import BadRequest, ComputeFailed
from poskernel_core.common.folders import default_directory
from poskernel_core.common.modules import command, environment
from poskernel_core.common.settings import checked_address, settings
from poskernel_core.models.attached import LAB

DEFAULT_PORT = 8501
PATIENCE = 120.0
"""Seconds that a server may take to start on a busy machine."""

FRAMES = (
    "'self' http://localhost:* http://127.0.0.1:* https://localhost:* vscode-webview: "
    "https://*.googleusercontent.com"
)
"""Origins of notebooks that may embed a server in a frame."""

started: list[Dashboard] = []
"""The servers started by this process, some of them stopped; the last one last."""
_starting = threading.Lock()


def script() -> Path:
    """Return ``serve.py``: in the installed package, or at the top of a checkout.

    Raises:
        BadRequest: it is in neither.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "dashboard", package.parent):
        if (folder / "serve.py").is_file() and (folder / "serving").is_dir():
            return folder / "serve.py"
    raise BadRequest(
        "Expected the dashboard beside the package, found none: install 'poskernel' anew, from its "
        "wheel or from a checkout."
    )


def site() -> Path | None:
    """Return the folder of the documentation's site beside ``serve.py``, if it was built."""
    folder = script().parent / "build" / "site"
    return folder if (folder / "index.html").is_file() else None


def arguments(host: str, port: int | None = None) -> list[str]:
    """Return Streamlit's command-line arguments; without ``port``, Streamlit picks a free one."""
    named = [] if port is None else [f"--server.port={port}"]
    return ["run", str(script()), f"--server.address={host}", *named]


def identity() -> dict[str, str]:
    """Return who a dashboard of this process is: program, version, and its store as a hash."""
    store = f"{platform.node()}:{default_directory().absolute()}"
    of_store = sha256(store.encode()).hexdigest()[:12]
    return {"program": "PosKernel", "version": __version__, "store_id": of_store}


def answers(url: str) -> bool:
    """Return whether a dashboard answers at an address."""
    return _asked(url) is not None


def serve(
    page: str = "", *, address: str | None = None, height: int = 800, **query: Any
) -> Dashboard:
    """Return a running dashboard, which a notebook shows as a frame.

    The first of these that answers is used: ``address``, ``POSKERNEL_ADDRESS``, the dashboard
    started earlier by this process, or a dashboard at port 8501 of this machine if it has this
    version and store, and notebooks may embed it. If none answers, a dashboard is started on a free
    port, with this process's environment; it is stopped when this process ends.

    Args:
        page: the address of a page, such as ``head``; empty for the landing page.
        address: the address of a running dashboard.
        height: height of the frame, in pixels.
        query: settings of the page, as in its address: ``model="demo-gpt2"``.

    Raises:
        BadRequest: no dashboard answers at the address, or none is installed here.
        ComputeFailed: a server could not be started.
    """
    return _placed(find(address) or _start(), page, height, query)


def serve_lab(line: int, fingerprint: str, page: str, **query: Any) -> Dashboard:
    """Start a dashboard that computes at the other end of an inherited socket (``Lab.serve``).

    Raises:
        ComputeFailed: a server could not be started.
    """
    return _placed(_start({LAB: f"{line} {fingerprint}"}, (line,)), page, 800, query)


def _placed(dashboard: Dashboard, page: str, height: int, query: Mapping[str, Any]) -> Dashboard:
    query_string = f"?{urlencode(query)}" if query else ""
    return Dashboard(dashboard.address, f"/{page}{query_string}", height, dashboard.process)


@dataclass(frozen=True)
class Dashboard:
    """A running dashboard.

    Attributes:
        address: its address, such as ``http://localhost:8501``.
        place: path and query of the page that is shown.
        height: height of the frame in a notebook, in pixels.
        process: the server; None if this process did not start it.
    """

    address: str
    place: str = "/"
    height: int = 800
    process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """Stop the server if this process started it."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(PATIENCE)

    def __repr__(self) -> str:
        return f"PosKernel at {self.address}{self.place}"

    def _repr_html_(self) -> str:
        url = html.escape(self.address + self.place)
        return (
            f'<iframe src="{url}" title="PosKernel" width="100%" height="{self.height}" '
            f'style="border:0"></iframe><p><a href="{url}" target="_blank">{url}</a></p>'
        )

    def _ipython_display_(self) -> None:
        """In Colab, show the frame through Colab, since the browser cannot reach the machine."""
        colab = sys.modules.get("google.colab")
        if colab is None:
            raise NotImplementedError  # makes IPython use the HTML representation
        colab.output.serve_kernel_port_as_iframe(
            urlsplit(self.address).port, path=self.place, height=self.height
        )


def find(address: str | None = None) -> Dashboard | None:
    """Return a running dashboard, or None if there is none.

    Raises:
        BadRequest: no dashboard answers at the given or configured address.
    """
    named = checked_address(address) if address else settings().address
    if named:
        if not answers(named):
            raise BadRequest(
                f"Expected a dashboard at {named}, and none answers: start it with 'poskernel "
                "serve', or leave the address out, and one is started."
            )
        return Dashboard(named)
    if alive := _running():
        return alive
    usual = f"http://localhost:{DEFAULT_PORT}"
    if (reply := _asked(usual)) is None:
        return None
    about, frames = reply
    ours = identity()
    if about["version"] != ours["version"]:
        other = f"is of version {about['version']}, not {ours['version']}"
    elif about["store_id"] != ours["store_id"]:
        other = f"has another store than {default_directory()}"
    elif "localhost:*" not in frames:
        other = "may not be shown in notebooks"
    else:
        return Dashboard(usual)
    print(f"The dashboard at {usual} {other}: another one is started.", file=sys.stderr)
    return None


def _running() -> Dashboard | None:
    alive = [
        dashboard for dashboard in started if dashboard.process and dashboard.process.poll() is None
    ]
    return alive[-1] if alive else None


def _asked(url: str) -> tuple[dict[str, Any], str] | None:
    """Return what the dashboard at an address says of itself, and who may frame it; or None."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:
            about, policy = json.load(reply), reply.headers.get("Content-Security-Policy", "")
    except (OSError, ValueError, HTTPException):  # also of what does not speak HTTP
        return None
    known = isinstance(about, dict) and about.get("program") == "PosKernel"
    return (about, policy.partition("frame-ancestors")[2]) if known else None


def _start(more: Mapping[str, str] = {}, lines: Sequence[int] = ()) -> Dashboard:
    """Start a server and wait until it answers."""
    with _starting:
        if not lines and (again := _running()):  # another thread was first
            return again
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        default_directory()  # without a home, Streamlit would not start
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                command("streamlit", *arguments("localhost", port)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"POSKERNEL_FRAME_ANCESTORS": FRAMES} | environment() | dict(more),
                pass_fds=lines,
            )
            atexit.register(process.terminate)
            server = Dashboard(f"http://localhost:{port}", process=process)
            end = time.monotonic() + PATIENCE
            while not answers(server.address):
                if process.poll() is not None or time.monotonic() > end:
                    process.kill()
                    log.seek(0)
                    said = log.read().decode(errors="replace").strip().rpartition("\n")[2]
                    raise ComputeFailed(
                        f"The dashboard could not be started: {said or 'no answer'}"
                    )
                time.sleep(0.2)
        started.append(server)
        return server
