"""Remove from an environment what no server runs: tests, headers, extensions for notebooks.

``python tools/trim_packages.py /opt/packages`` says how much went. The images are built with it.
"""

import shutil
import sys
from pathlib import Path

__all__ = ["trim"]

UNUSED = (
    "numpy/_core/include",
    "numpy/_core/lib",
    "numpy/**/tests",
    "pandas/tests",
    "plotly/labextension",
    "pyarrow/include",
    "pyarrow/lib*_flight.so*",
    "pyarrow/libarrow_flight.so*",
    "pyarrow/_flight.*",
    "pyarrow/_s3fs.*",
    "pyarrow/libarrow_s3.so*",
    "pyarrow/src",
    "pyarrow/tests",
    "pydeck/nbextension",
    "scipy/**/tests",
    "sklearn/**/tests",
    "sympy/**/tests",
    "torch/bin/*[Tt]est*",
    "torch/bin/protoc*",
    "torch/include",
    "torch/share",
    "torch/test",
)
"""Patterns below ``site-packages``."""


def trim(packages: Path) -> int:
    """Remove what is unused below a folder of packages; return the bytes."""
    found = {path for pattern in UNUSED for path in packages.glob(pattern)}
    removed = 0
    for path in sorted(found):
        if path.is_dir():
            removed += sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
            shutil.rmtree(path)
        elif path.is_file():
            removed += path.stat().st_size
            path.unlink()
    return removed


if __name__ == "__main__":
    (site,) = Path(sys.argv[1]).glob("lib/python3*/site-packages")
    print(f"{trim(site) / 1e6:.0f} MB of the packages removed that no server runs")
