"""``mcp``: tools for an assistant, over standard input and output."""

import click

from poskernel_core.cli.grammar import Command
from poskernel_core.cli.options import connected, server_option
from poskernel_core.common.errors import BadRequest

MISSING = "Assistants need the package mcp: install 'poskernel[mcp]'."


@click.command(cls=Command, params=[server_option()])
def mcp(server: str | None) -> None:
    """Answer an assistant (MCP) over standard input and output."""
    try:
        from poskernel_core.mcp.server import Assistants
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise BadRequest(MISSING) from error
    from poskernel_core.mcp.here import Here

    source = connected(server) or Here()
    Assistants(lambda _: source).run()
