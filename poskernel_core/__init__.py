"""PosKernel: how a transformer's attention heads use position.

Public names are imported lazily, so that importing the package does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poskernel_core.api import (
        analyse,
        load,
        precompute,
        run_pass,
        show,
        to_bridge,
        token_windows,
        view,
        watch,
    )
    from poskernel_core.client import Server, connect
    from poskernel_core.common.errors import PosKernelError
    from poskernel_core.common.result import Result
    from poskernel_core.common.specs import CorpusSpec, Execution, ModelSpec, Request, RunSpec
    from poskernel_core.common.views import Gathered
    from poskernel_core.data.head_tables import HeadTable, read_head_table
    from poskernel_core.engine.engine import Engine, describe_run
    from poskernel_core.engine.job import Job
    from poskernel_core.export.matrix import Matrix, matrix
    from poskernel_core.export.notebook import View
    from poskernel_core.export.schema import schema
    from poskernel_core.ledger.reproduce import reproduce
    from poskernel_core.objects.lab import Lab, attach
    from poskernel_core.objects.training import TrainingLog
    from poskernel_core.server import Dashboard, serve
    from poskernel_core.storage.store import Store

__version__ = "1.1.0"

_HOMES = {
    "api": "analyse load precompute run_pass show to_bridge token_windows view watch",
    "client": "Server connect",
    "objects.lab": "Lab attach",
    "objects.training": "TrainingLog",
    "common.errors": "PosKernelError",
    "common.result": "Result",
    "common.specs": "CorpusSpec Execution ModelSpec Request RunSpec",
    "common.views": "Gathered",
    "data.head_tables": "HeadTable read_head_table",
    "engine.engine": "Engine describe_run",
    "engine.job": "Job",
    "export.matrix": "Matrix matrix",
    "export.notebook": "View",
    "export.schema": "schema",
    "ledger.reproduce": "reproduce",
    "server": "Dashboard serve",
    "storage.store": "Store",
}

__all__ = [
    "CorpusSpec",
    "Dashboard",
    "Engine",
    "Execution",
    "Gathered",
    "HeadTable",
    "Job",
    "Lab",
    "Matrix",
    "ModelSpec",
    "PosKernelError",
    "Request",
    "Result",
    "RunSpec",
    "Server",
    "Store",
    "TrainingLog",
    "View",
    "analyse",
    "attach",
    "connect",
    "describe_run",
    "load",
    "matrix",
    "precompute",
    "read_head_table",
    "reproduce",
    "run_pass",
    "schema",
    "serve",
    "show",
    "to_bridge",
    "token_windows",
    "view",
    "watch",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"poskernel_core.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
