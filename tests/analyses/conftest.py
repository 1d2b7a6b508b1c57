"""Models that several topics ask."""

import pytest

from tests.support.builders import contextual


@pytest.fixture(scope="session")
def paths(model_dirs, tmp_path_factory):
    """Directories of all tiny models, those of `builders.contextual` among them."""
    root = tmp_path_factory.mktemp("contextual")
    return model_dirs | {
        "additive": contextual.additive(root / "additive", contextual.CONTENT),
        "turning": contextual.turning(root / "turning"),
        "grouped": contextual.grouped(root / "grouped"),
    }
