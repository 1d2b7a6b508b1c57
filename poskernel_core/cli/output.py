"""Where the command line puts a result: files, JSON, or text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from poskernel_core.cli.reports import summary
from poskernel_core.cli.terminal import say
from poskernel_core.common.atomic_write import atomic_write, check_target
from poskernel_core.common.result import Result
from poskernel_core.export.files import to_html, to_json, to_npz

__all__ = ["Output"]


@dataclass(frozen=True)
class Output:
    """What was asked for: the files to write, and whether JSON is printed."""

    npz: Path | None
    html: Path | None
    as_json: bool

    def check(self) -> None:
        """Check that the files can be written, before anything is computed for them.

        Raises:
            BadRequest: a file that cannot be written.
        """
        for path in filter(None, (self.npz, self.html)):
            check_target(path)

    def write(self, result: Result) -> None:
        """Write a result to the files, or print it, as JSON or as text.

        Raises:
            BadRequest: a file that cannot be written.
        """
        if self.npz is not None:
            atomic_write(self.npz, lambda path: path.write_bytes(to_npz(result)))
        if self.html is not None:
            from poskernel_core.analyses.drawing import figure_of

            page = to_html([figure_of(result)], result, result.analysis)
            atomic_write(self.html, lambda path: path.write_text(page, encoding="utf-8"))
        if self.as_json:
            print(to_json(result))
        elif self.npz is None and self.html is None:
            say(summary(result), lines=True)
