"""``serve``: the dashboard, in this process."""

from __future__ import annotations

import os
import socket
from contextlib import closing, suppress
from pathlib import Path

import click

from poskernel_core.cli.grammar import Option, Value
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.files import is_folder
from poskernel_core.models.catalog import locate
from poskernel_core.models.gguf import is_gguf
from poskernel_core.server import DEFAULT_PORT, arguments
from poskernel_core.storage.store import Store, default_directory

__all__ = ["serve", "serve_options"]

SECTION = "The server"
READERS = "Its readers"


def serve_options() -> list[click.Parameter]:
    """Return the options of ``serve``."""
    return [
        Option(
            "--model",
            "models",
            section=SECTION,
            what="a model on offer besides the bundled ones, which opens first; may be repeated",
            metavar="NAME_OR_DIR",
            multiple=True,
            type=Value("a model's name or directory", _model),
        ),
        Option(
            "--cache",
            "cache",
            section=SECTION,
            what="folder that holds what was computed",
            facts=("default: the variable POSKERNEL_CACHE, else the user's cache folder",),
            metavar="DIR",
            type=Value("the name of a folder", Path),
        ),
        Option(
            "--port",
            "port",
            section=SECTION,
            what="port that it listens at",
            facts=(f"default: {DEFAULT_PORT}, or the next that is free",),
            metavar="N",
            type=Value("a port from 1 to 65,535", _port),
        ),
        Option(
            "--host",
            "host",
            section=SECTION,
            what="address that it listens at",
            facts=("default: localhost, for this machine alone; 0.0.0.0: for every other as well",),
            metavar="HOST",
            default="localhost",
            type=Value("a host name or an address", _host),
        ),
        Option(
            "--open",
            "opened",
            section=SECTION,
            what="open it in a browser of this machine",
            is_flag=True,
        ),
        Option(
            "--public",
            "public",
            section=READERS,
            what="strangers reach it: tighter bounds on what one of them may ask for",
            is_flag=True,
        ),
        Option(
            "--read-only",
            "read_only",
            section=READERS,
            what="show what was computed before, and compute nothing",
            is_flag=True,
        ),
    ]


def serve(
    models: tuple[str, ...],
    cache: Path | None,
    port: int | None,
    host: str,
    opened: bool,
    public: bool,
    read_only: bool,
) -> None:
    """Serve the dashboard until it is stopped.

    Raises:
        BadRequest: a model that is not found, a folder that cannot hold a store, a port that is
            taken, a host that is not ours.
    """
    offered = [*models, os.environ.get("POSKERNEL_MODELS", "")]
    told = {
        "POSKERNEL_MODELS": ",".join(filter(None, offered)),
        "POSKERNEL_CACHE": str(cache.expanduser().absolute()) if cache else "",
        "POSKERNEL_PUBLIC": "1" if public else "",
        "POSKERNEL_READ_ONLY": "1" if read_only else "",
        "POSKERNEL_OPEN": "1" if opened else "",
    }
    os.environ.update({name: value for name, value in told.items() if value})
    for name in models:
        locate(name)
    Store(default_directory()).close()
    _check_door(host, port)

    from streamlit.web.cli import main

    with suppress(click.Abort):  # stopped from the keyboard
        main(arguments(host, port), prog_name="poskernel serve", standalone_mode=False)


def _check_door(host: str, port: int | None) -> None:
    """Refuse a host that is none of this machine's, and a port that is taken.

    Raises:
        BadRequest: either.
    """
    for at, name, instead in (
        (0, host, "'localhost' or '0.0.0.0' as --host, or an address of this machine"),
        (port or 0, f"port {port}", "another --port, or leave it out, and a free one is taken"),
    ):
        try:
            family, *_, place = socket.getaddrinfo(host, at, type=socket.SOCK_STREAM)[0]
            with closing(socket.socket(family)) as door:
                door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                door.bind(place)
        except OSError as error:
            raise BadRequest(
                f"Cannot listen at {name} ({error.strerror}): choose {instead}."
            ) from error


def _model(text: str) -> str:
    """Return a model as the server knows it: a directory or file by its whole path."""
    if not text.strip() or "," in text:
        raise ValueError
    path = Path(text).expanduser()
    return str(path.absolute()) if is_folder(path) or is_gguf(text.strip()) else text.strip()


def _port(text: str) -> int:
    if not 1 <= int(text) <= 65_535:
        raise ValueError
    return int(text)


def _host(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text.strip()
