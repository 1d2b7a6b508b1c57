"""A real Caddy or nginx with a configuration of ours; run as a module, their paths are printed."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import until
from tests.support.server import ROOT, free_port

OURS = Path(sys.prefix) / "proxies/usr"
"""Where `make test` puts them."""
CADDY = shutil.which("caddy") or shutil.which("caddy", path=str(OURS / "bin"))
NGINX = shutil.which("nginx") or shutil.which("nginx", path=str(OURS / "sbin"))
needs_caddy = pytest.mark.skipif(CADDY is None, reason="Caddy is not installed")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


@contextmanager
def caddy(folder: Path, configuration: str, **settings: str) -> Iterator[str]:
    """The address of a Caddy with a configuration that the project ships."""
    port = free_port()
    command = [CADDY, "run", "--adapter", "caddyfile", "--config", f"deploy/{configuration}"]
    ours = {"POSKERNEL_SITE": f"http://127.0.0.1:{port}", "HOME": str(folder)}
    with _running(command, folder / "log", port, ours | settings) as address:
        yield address


@contextmanager
def nginx(folder: Path, block: str, upstream: str) -> Iterator[str]:
    """The address of an nginx with a `map` and a `server` that the documentation shows."""
    port = free_port()
    ours = block.replace("server {", f"server {{\n    listen 127.0.0.1:{port};", 1)
    ours = ours.replace("127.0.0.1:8621", upstream)
    places = [f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi")]
    places += [f"{kind}_temp_path {folder};" for kind in ("uwsgi", "scgi")]
    text = f"events {{}}\nhttp {{\naccess_log off;\n{' '.join(places)}\n{ours}}}\n"
    (folder / "nginx.conf").write_text(text, "utf-8")
    told = f"daemon off; master_process off; pid {folder}/pid; error_log stderr;"
    command = [NGINX, "-p", str(folder), "-e", "stderr", "-c", "nginx.conf", "-g", told]
    with _running(command, folder / "log", port, {}) as address:
        yield address


@contextmanager
def _running(
    command: Sequence[str | None], log: Path, port: int, settings: Mapping[str, str]
) -> Iterator[str]:
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | settings, stdout=file, stderr=file
        )
    try:

        def answers():
            assert process.poll() is None, log.read_text("utf-8")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        until(answers, 60, 0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    print(CADDY or "no Caddy was found", NGINX or "no nginx was found", sep="\n")
    sys.exit(CADDY is None or NGINX is None)
