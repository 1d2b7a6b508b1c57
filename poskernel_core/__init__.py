"""PosKernel: how a transformer's attention heads use position.

The public names are loaded when first used, so that importing the package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poskernel_core.analyses.base import Result
    from poskernel_core.api import analyse, load, run_pass, show
    from poskernel_core.config import CorpusSpec, Execution, ModelSpec, Request, RunSpec
    from poskernel_core.engine import Engine, describe_run
    from poskernel_core.errors import PosKernelError
    from poskernel_core.job import Job
    from poskernel_core.reproduction import reproduce
    from poskernel_core.store import Store
    from poskernel_core.views import Gathered

__version__ = "0.1.0"

_HOMES = {
    "CorpusSpec": "config",
    "Engine": "engine",
    "Execution": "config",
    "Gathered": "views",
    "Job": "job",
    "ModelSpec": "config",
    "PosKernelError": "errors",
    "Request": "config",
    "Result": "analyses.base",
    "RunSpec": "config",
    "Store": "store",
    "analyse": "api",
    "describe_run": "engine",
    "load": "api",
    "reproduce": "reproduction",
    "run_pass": "api",
    "show": "api",
}

__all__ = [
    "CorpusSpec",
    "Engine",
    "Execution",
    "Gathered",
    "Job",
    "ModelSpec",
    "PosKernelError",
    "Request",
    "Result",
    "RunSpec",
    "Store",
    "analyse",
    "describe_run",
    "load",
    "reproduce",
    "run_pass",
    "show",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"poskernel_core.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
