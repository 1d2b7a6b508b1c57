"""What the wheel holds besides the package: the dashboard, and the demos or a dependency on them.

hatchling calls this (see ``pyproject.toml``). ``app.py``, ``serve.py``, ``pages/`` and ``serving/``
lie at the top of the checkout and become one folder of the package, so that no package called
``pages`` lands among others' packages. An editable installation serves from the checkout instead.

The demo models and their results are larger than everything else together. A source distribution
leaves them out and depends on the wheel of ``poskernel_core/demo``, and so does a wheel that is
built from it. A wheel that is built in a checkout has them.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DASHBOARD = ("app.py", "serve.py", "pages", "serving", ".streamlit")


class Hook(BuildHookInterface[Any]):
    """Adds what lies elsewhere to what is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Say what is added to this distribution."""
        if self.target_name == "wheel" and version != "editable":
            build_data["force_include"] |= {
                f"{self.root}/{name}": f"poskernel_core/dashboard/{name}" for name in DASHBOARD
            }
        if self.target_name == "sdist" or not Path(self.root, "poskernel_core/demo").is_dir():
            build_data["dependencies"].append(self.config["demos"])
