"""Where the command line puts a result: files, JSON, or text."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from poskernel_core.analyses.base import Result
from poskernel_core.errors import BadRequest
from poskernel_core.exports import to_html, to_json, to_npz
from poskernel_core.reports import summary
from poskernel_core.terminal import say
from poskernel_core.whole import check_target, write_whole

__all__ = ["check_out", "write_out"]


def check_out(options: argparse.Namespace) -> None:
    """Check that the files asked for can be written, before anything is computed for them.

    Raises:
        BadRequest: a file that cannot be written.
    """
    for path in filter(None, (options.npz, options.html)):
        check_target(path)
    if options.html is not None:
        _figures()


def write_out(result: Result, options: argparse.Namespace) -> None:
    """Write a result to the files asked for, or print it, as JSON or as text.

    Raises:
        BadRequest: a file that cannot be written.
    """
    if options.npz is not None:
        write_whole(options.npz, lambda path: path.write_bytes(to_npz(result)))
    if options.html is not None:
        figure_of = _figures()
        page = to_html([figure_of(result)], result, result.analysis)
        write_whole(options.html, lambda path: path.write_text(page, encoding="utf-8"))
    if options.json:
        print(to_json(result))
    elif options.npz is None and options.html is None:
        say(summary(result), lines=True)


def _figures() -> Callable[[Result], Any]:
    try:
        from pages.parts.figures.of_result import figure_of
    except ModuleNotFoundError as error:
        raise BadRequest(
            "--html needs the dashboard's figures: run it in PosKernel's own folder."
        ) from error
    return figure_of
