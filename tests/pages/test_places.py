"""A widget keeps its place on a page while results arrive.

The browser keeps what stood in a box until the run of the script has ended. A widget that has moved
is there twice as long, and when its old place is cleared, Streamlit forgets which parameter of the
address it sets.
"""

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from pages import NAMES
from pages.shared.jobs import results
from poskernel_core.engine.engine import Engine
from poskernel_core.storage.store import Store
from tests.pages.test_script import MODEL, cache  # noqa: F401
from tests.support import ROOT
from tools.recorded import open_page

FEW = {"model": MODEL, "windows": "50", "context": "64"}


def places(app: AppTest) -> dict[str, tuple[int, ...]]:
    """Where each widget stands that sets a parameter of the address: the way to it from the top."""
    found: dict[str, tuple[int, ...]] = {}

    def look(node: Any, way: tuple[int, ...]) -> None:
        if key := getattr(getattr(node, "proto", None), "query_param_key", None):
            found[key] = way
        for place, child in getattr(node, "children", {}).items():
            look(child, (*way, place))

    look(app.main, ())
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_widget_keeps_its_place(name, cache, tmp_path, monkeypatch):  # noqa: F811
    """Where nothing is computed it stands where it stands once everything is."""
    monkeypatch.setenv("POSKERNEL_READ_ONLY", "1")
    found = []
    for folder in (tmp_path, cache):
        engine = Engine(Store(folder))
        monkeypatch.setattr(results, "engine", lambda engine=engine: engine)
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
        for key, value in FEW.items():
            app.query_params[key] = value
        found.append(places(open_page(app, name)))
        engine.close()
    empty, full = found
    assert empty == {key: full[key] for key in empty if key in full}
