"""The options of the command line: what describes a run, and every parameter of any analysis."""

from __future__ import annotations

import argparse
import re
import typing
from pathlib import Path

from poskernel_core import analyses
from poskernel_core.config import Dtype, is_device

__all__ = ["add_ledger", "add_result", "add_run"]

MOST = 10**9
"""Largest number that an option of a run takes."""


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a run and where it is carried out."""
    parser.add_argument("model", metavar="MODEL", help="bundled name, hub name or directory")
    parser.add_argument("--revision", help="hub revision or training checkpoint")
    parser.add_argument("--corpus", default="sample", help="name or .txt/.jsonl/.parquet/.npy file")
    parser.add_argument("--corpus-item", help="one named text of the corpus")
    parser.add_argument("--corpus-revision", help="revision of a hub corpus")
    parser.add_argument("--texts", type=_positive, help="windows of text (default: up to 500)")
    parser.add_argument("--context", type=_positive, help="tokens per window (default: up to 1024)")
    parser.add_argument("--no-start-token", action="store_true", help="no start token first")
    parser.add_argument(
        "--seed", type=_natural, default=0, help="order of documents, random tokens"
    )
    parser.add_argument("--dtype", choices=typing.get_args(Dtype), default="float32")
    parser.add_argument(
        "--device", type=_device, help="auto, cpu, cuda, cuda:1, mps (default: POSKERNEL_DEVICE)"
    )
    parser.add_argument("--batch", type=_positive, help="windows per forward pass")


def add_result(parser: argparse.ArgumentParser) -> None:
    """Add selections, outputs, and one option for every parameter of any analysis."""
    parser.add_argument(
        "--query",
        type=_whole,
        help="query position n; one that is not recorded by default needs a pass",
    )
    parser.add_argument("--cell", help="one head, such as L0H3")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--npz", type=Path, metavar="FILE", help="write arrays")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a stand-alone figure")
    seen = {"query", "cell"}
    for analysis in analyses.ANALYSES.values():
        for name, field in analysis.params.model_fields.items():
            if name not in seen:
                seen.add(name)
                option = f"--{name.replace('_', '-')}"
                truth = "true|false" if field.annotation is bool else None
                parser.add_argument(
                    option, dest=f"param_{name}", help=field.description, metavar=truth
                )


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """Add where the published figures come from, and the output."""
    parser.add_argument(
        "--as",
        dest="published_as",
        metavar="NAME",
        help="whose figures: for a local copy of a model that was published under another name",
    )
    parser.add_argument(
        "--figures", type=Path, metavar="FILE", help="published figures of your own (JSON)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _natural(text: str) -> int:
    return _number(text, 0)


def _positive(text: str) -> int:
    return _number(text, 1)


def _whole(text: str) -> int:
    return _number(text, -MOST)


def _number(text: str, least: int) -> int:
    """Return a whole number written in the digits 0 to 9."""
    number = int(text) if re.fullmatch("-?[0-9]{1,10}", text) else None
    if number is None or not least <= number <= MOST:
        raise argparse.ArgumentTypeError(
            f"expected a whole number from {least} to {MOST}, got {text[:40]!r}"
        )
    return number


def _device(text: str) -> str:
    if not is_device(text):
        raise argparse.ArgumentTypeError(
            f"expected a device such as auto, cpu, cuda or cuda:1, got {text[:40]!r}"
        )
    return text
