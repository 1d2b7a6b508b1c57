"""Where the command line puts a result: files, JSON, or text."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from poskernel_core.analyses.base import Result
from poskernel_core.errors import BadRequest
from poskernel_core.exports import to_html, to_json, to_npz
from poskernel_core.reports import summary

__all__ = ["write_out"]


def write_out(result: Result, options: argparse.Namespace) -> None:
    """Write a result to the files asked for, or print it, as JSON or as text.

    Raises:
        BadRequest: a file that cannot be written.
    """
    if options.npz is not None:
        _write(options.npz, lambda path: path.write_bytes(to_npz(result)))
    if options.html is not None:
        figure_of = _figures()
        page = to_html([figure_of(result)], result, result.analysis)
        _write(options.html, lambda path: path.write_text(page, encoding="utf-8"))
    if options.json:
        print(to_json(result))
    elif options.npz is None and options.html is None:
        print(summary(result))


def _figures() -> Callable[[Result], Any]:
    try:
        from pages.parts.figures.of_result import figure_of
    except ModuleNotFoundError as error:
        raise BadRequest(
            "--html needs the dashboard's figures: run it in PosKernel's own folder."
        ) from error
    return figure_of


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        write(partial)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise BadRequest(f"Cannot write {str(path)!r}: {error.strerror}.") from error
