"""Files that are there and may not be read: one sentence names them, and calls none damaged."""

import errno
import re
import shutil
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
def test_a_models_files(model_dirs, tmp_path, monkeypatch, name):
    place = shutil.copytree(model_dirs["gpt2"], tmp_path / "model")
    refuse(monkeypatch, name)
    with pytest.raises(BadRequest, match=rf"{re.escape(str(place / name))}.*Permission denied"):
        catalog.locate(str(place))


def test_the_hubs_cache(monkeypatch):
    def locked(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "/models/hub/version.txt")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", locked)
    with pytest.raises(BadRequest, match=r"cache .*version\.txt': Permission denied"):
        hub.fetch_file("gpt2", "config.json", None)
