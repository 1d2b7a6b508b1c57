"""What all pages share: the run, the head, the query position, the skip."""

from dataclasses import dataclass

from pages.shared.choices.choices import choose
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import RunSpec
from poskernel_core.models.catalog import Located


@dataclass(frozen=True)
class Selection:
    """What is selected; the same on every page."""

    located: Located
    run: RunSpec
    layer: int
    head: int
    query: int
    skip: int

    @property
    def cell(self) -> str:
        """Name of the selected head, such as ``L0H3``."""
        return head_name(self.layer, self.head)

    def told(self) -> str:
        """Return in one line which head and position of which run are selected."""
        run = self.run
        read = f"{counted(run.windows, 'window')} of {counted(run.context, 'token')}"
        at = f"{self.cell}, n = {self.query}, corpus {run.corpus.name}, {read}"
        return f"{self.located.title}, {at}"

    def of(self, result: Result) -> Result:
        """Return the selected head's part of a result on all heads."""
        return result.select(layer=self.layer, head=self.head)


def select_head(cell: str) -> None:
    """Select a head from elsewhere than the grid (a table, say). A callback."""
    choose("head", cell)
