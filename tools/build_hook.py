"""Build hook: adds the dashboard to the wheel, and the demos or a dependency on them.

hatchling calls this (see ``pyproject.toml``). ``app.py``, ``serve.py``, ``pages/`` and ``serving/``
are at the top of the checkout; the wheel puts them into one folder of the package, so that it does
not install a top-level package called ``pages``. The documentation's site comes with them if it was
built (``make docs``). An editable installation uses the checkout.

The demo models and their results are larger than everything else together. A source distribution,
and a wheel built from it, leaves them out and depends on the wheel of ``poskernel_core/demo``. A
wheel built in a checkout contains them.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SITE = "build/site"
DASHBOARD = ("app.py", "serve.py", "pages", "serving", ".streamlit", "docs/concepts", SITE)


class Hook(BuildHookInterface[Any]):
    """Adds files from outside the package to the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folders = {"sdist": "", "wheel": "poskernel_core/dashboard/"}
        if version != "editable":
            build_data["force_include"] |= {
                f"{self.root}/{name}": folders[self.target_name] + name
                for name in (DASHBOARD if self.target_name == "wheel" else (SITE,))
                if Path(self.root, name).exists()
            }
        if self.target_name == "sdist" or not Path(self.root, "poskernel_core/demo").is_dir():
            build_data["dependencies"].append(self.config["demos"])
