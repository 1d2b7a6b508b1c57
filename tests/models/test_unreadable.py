"""Files that are there and may not be read: one sentence names them, and calls none damaged."""

import errno
from pathlib import Path

import pytest

from poskernel_core.common.errors import BadRequest
from poskernel_core.models import catalog, hub, weights


def refuse(monkeypatch, name: str) -> None:
    """Have every attempt to open a file of that name end as for somebody without the right."""
    opened = Path.open

    def locked(path: Path, *more, **options):
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *more, **options)

    monkeypatch.setattr(Path, "open", locked)
    monkeypatch.setattr(weights, "open", lambda path, *more: locked(Path(path), *more), False)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_models_files(model_dirs, monkeypatch, name):
    place = model_dirs["gpt2"]
    weights._described.cache_clear()
    refuse(monkeypatch, name)
    with pytest.raises(BadRequest) as told:
        catalog.locate(str(place))
    assert str(told.value) == (
        f"Cannot read '{place / name}': Permission denied; ask for the right to read it, or name "
        "another."
    )


def test_the_hubs_cache():
    def locked():
        raise PermissionError(errno.EACCES, "Permission denied", "/models/hub/version.txt")

    with pytest.raises(
        BadRequest, match=r"^Cannot use the cache .*version\.txt': Permission denied"
    ):
        hub._guarded("gpt2", None, locked)
