"""``serve``: run the dashboard in this process."""

import os
import socket
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import click

from poskernel_core.cli.grammar import Command, option, reader
from poskernel_core.cli.options import FILE
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.files import is_folder
from poskernel_core.common.folders import default_directory
from poskernel_core.models.catalog import locate
from poskernel_core.models.gguf import is_gguf
from poskernel_core.server import DEFAULT_PORT, arguments
from poskernel_core.storage.store import Store

_server = partial(option, section="The server")
_readers = partial(option, section="Its readers")


def _model(text: str) -> str:
    if not text.strip() or "," in text:
        raise ValueError
    path = Path(os.path.expanduser(text))
    return str(path.absolute()) if is_folder(path) or is_gguf(text.strip()) else text.strip()


def _host(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text.strip()


@click.command(cls=Command)
@_server(
    "--model",
    "models",
    multiple=True,
    metavar="NAME_OR_DIR",
    type=reader("a model's name or directory", _model),
    help="a model on offer besides the bundled ones, which opens first; may be repeated",
)
@_server(
    "--cache",
    type=FILE,
    metavar="DIR",
    help="folder that holds what was computed; the variable POSKERNEL_CACHE if not given, else "
    "the user's cache folder",
)
@_server(
    "--port",
    type=click.IntRange(1, 65_535),
    metavar="N",
    help=f"port that it listens at; {DEFAULT_PORT} if not given, or the next that is free",
)
@_server(
    "--host",
    default="localhost",
    metavar="HOST",
    type=reader("a host name or an address", _host),
    help="address that it listens at: localhost is for this machine alone, 0.0.0.0 for every "
    "other as well",
)
@_server("--open", "opened", is_flag=True, help="open it in a browser of this machine")
@_readers(
    "--public",
    is_flag=True,
    help="strangers reach it: tighter bounds on what one of them may ask for",
)
@_readers("--read-only", is_flag=True, help="show what was computed before, and compute nothing")
def serve(
    models: tuple[str, ...],
    cache: Path | None,
    port: int | None,
    host: str,
    opened: bool,
    public: bool,
    read_only: bool,
) -> None:
    """Serve the dashboard: every head of a model, in a browser."""
    offered = [*models, os.environ.get("POSKERNEL_MODELS", "")]
    variables = {
        "POSKERNEL_MODELS": ",".join(filter(None, offered)),
        "POSKERNEL_CACHE": os.path.abspath(os.path.expanduser(cache)) if cache else "",
        "POSKERNEL_PUBLIC": "1" if public else "",
        "POSKERNEL_READ_ONLY": "1" if read_only else "",
        "POSKERNEL_OPEN": "1" if opened else "",
    }
    os.environ.update({name: value for name, value in variables.items() if value})
    for name in models:
        locate(name)
    Store(default_directory()).close()
    _check_door(host, port)

    from streamlit.web.cli import main

    with suppress(click.Abort):  # stopped from the keyboard
        main(arguments(host, port), prog_name="poskernel serve", standalone_mode=False)


def _check_door(host: str, port: int | None) -> None:
    """Check that the host is an address of this machine and that the port is free."""
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
