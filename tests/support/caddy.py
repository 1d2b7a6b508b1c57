"""A real Caddy with a configuration that the project ships; run as a module, it is printed."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import until
from tests.support.server import ROOT, free_port

OURS = Path(sys.prefix) / "caddy/usr/bin"
"""Where `make test` puts one."""
CADDY = shutil.which("caddy") or shutil.which("caddy", path=str(OURS))
needs_caddy = pytest.mark.skipif(CADDY is None, reason="Caddy is not installed")


@contextmanager
def caddy(folder: Path, configuration: str, **settings: str) -> Iterator[str]:
    """The address of a Caddy with a configuration that the project ships."""
    port = free_port()
    with (folder / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [CADDY, "run", "--adapter", "caddyfile", "--config", f"deploy/{configuration}"],
            cwd=ROOT,
            env=os.environ
            | {"POSKERNEL_SITE": f"http://127.0.0.1:{port}", "HOME": str(folder)}
            | settings,
            stdout=log, stderr=log,
        )  # fmt: skip
    try:

        def answers():
            assert process.poll() is None, (folder / "log").read_text("utf-8")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        until(answers, 60, 0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    print(CADDY or "no Caddy was found")
    sys.exit(CADDY is None)
