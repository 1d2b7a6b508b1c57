"""This machine, asked as a server is."""

from collections.abc import Callable, Mapping
from typing import Any

from poskernel_core.analyses import ANALYSES
from poskernel_core.api import build_request
from poskernel_core.common.outside import from_outside
from poskernel_core.common.result import Result
from poskernel_core.common.settings import settings
from poskernel_core.engine.engine import Engine, engine_or_shared
from poskernel_core.engine.inventory import inventory
from poskernel_core.export.schema import described, listed
from poskernel_core.server import DEFAULT_PORT


class Here:
    """What ``pk.connect`` returns, for this machine; models are those that its menus offer.

    Attributes:
        address: where its dashboard is, once it is started.
    """

    def __init__(self, engine: Engine | None = None) -> None:
        self._engine = engine_or_shared(engine)
        self.address = settings().address or f"http://localhost:{DEFAULT_PORT}"

    def show(
        self,
        analysis: str,
        model: str,
        *,
        tell: Callable[[Mapping[str, Any]], None],
        **options: Any,
    ) -> Result:
        """Return a result; ``tell`` hears of the job, and cancels it by an error."""
        with from_outside():
            request, chosen = build_request(analysis, model, **options)
            *_, result = self._engine.watch(request, None, tell=lambda job: tell(vars(job)))
        return result.select(**chosen)

    def models(self) -> list[dict[str, Any]]:
        """Return the models on offer."""
        return inventory(self._engine.store)

    def questions(self) -> list[dict[str, Any]]:
        """Return name, title and summary of each question."""
        return [listed(analysis) for analysis in ANALYSES.values()]

    def question(self, analysis: str) -> dict[str, Any]:
        """Return the description of a question."""
        return described(analysis)
