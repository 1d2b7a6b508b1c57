"""Statistics of a pass, one class per file; importing the package fills :data:`STATISTICS`."""

from importlib import import_module
from pkgutil import iter_modules

from poskernel_core.statistics.base import STATISTICS, Sizes, Statistic, Sums

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["STATISTICS", "Sizes", "Statistic", "Sums"]
