"""A real server for the tests and the screenshots: a process of its own, on a free port."""

import asyncio
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.support import ROOT, until

STREAM = "/_stcore/stream"
PATIENCE = 120.0  # seconds; the machine may be busy with other work


@dataclass(frozen=True)
class Server:
    """A server that answers at `url`, the cache that it and its worker use, its process."""

    url: str
    cache: Path
    pid: int

    def link(self, path: str = "/", **parameters: object) -> str:
        """The address of a page with the parameters given, and 50 windows of text."""
        return f"{self.url}{path}?{urlencode({'windows': 50, **parameters})}"


def environment(cache: Path, shipped: bool = False) -> dict[str, str]:
    """What a process of ours is started with: its own cache, no network, one thread.

    Without what comes with the project, unless that is asked for.
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith("POSKERNEL_")}
    return ours | {
        "POSKERNEL_CACHE": str(cache),
        "POSKERNEL_SHIPPED": str(int(shipped)),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(cache / "hub"),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
    }


def command_line(cache: Path, *arguments: str) -> str:
    """Run `python -m poskernel_core` and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "poskernel_core", *arguments],
        cwd=ROOT, env=environment(cache), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@contextmanager
def serve(
    cache: Path,
    log: Path,
    shipped: bool = False,
    models: str = "",
    settings: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Start a server that offers further models, and wait until it answers; stop it at the end.

    `settings` are further environment variables.
    """
    port = free_port()
    command = [
        sys.executable, "-m", "streamlit", "run", "serve.py", f"--server.port={port}",
        "--server.address=127.0.0.1",
    ]  # fmt: skip
    ours = environment(cache, shipped) | {"POSKERNEL_MODELS": models} | dict(settings or {})
    with running(command, f"http://127.0.0.1:{port}/_stcore/health", log, ours) as process:
        yield Server(f"http://127.0.0.1:{port}", cache, process.pid)


@contextmanager
def running(
    command: Sequence[str], health: str, log: Path, env: Mapping[str, str], cwd: Path | str = ROOT
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes into a file, from when an address answers; it is stopped at the end."""
    with log.open("a", encoding="utf-8") as output:
        process = subprocess.Popen(command, cwd=cwd, env=env, stdout=output, stderr=output)
    try:
        wait_for(health, process)
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def answer(address: str, **headers: str) -> tuple[int, Message, str]:
    """Status, headers and text of an answer, errors included; names of headers have ``_``."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=named)) as found:
            return found.status, found.headers, found.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until an address answers, for as long as the process lives."""

    def there() -> bool:
        assert process.poll() is None, f"the server ended with exit code {process.returncode}"
        return answers(address)

    until(there, PATIENCE, 0.2)


def answers(address: str) -> bool:
    """Whether an address answers."""
    with suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:
        return answer.status == 200
    return False


def run_alone(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine, run in a thread of its own: a browser's loop may be at work."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, coroutine).result()


def scope(
    path: str = "/", kind: str = "http", client: str | None = "203.0.113.7", **headers: str
) -> dict[str, Any]:
    """A request, or with the kind ``websocket`` one to open a web socket.

    Names of headers have ``_`` for ``-``.
    """
    return {
        "type": kind,
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [
            (name.replace("_", "-").lower().encode(), text.encode())
            for name, text in headers.items()
        ],
        "client": (client, 5000) if client is not None else None,
    }
