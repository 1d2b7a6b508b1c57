"""Models that are objects in somebody's process: what is kept of them beside their results.

There is a folder for each name in the default directory, in the form of a folder of results
(:mod:`poskernel_core.models.stored`): configuration, geometry, the run to show first, and the
versions of the model that were attached under the name, or the steps of a training run. Other
processes show the results of such a model and compute nothing.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import FileLock

from poskernel_core.common.atomic_write import write_file
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.files import read_object
from poskernel_core.common.folders import default_directory
from poskernel_core.common.specs import ModelSpec, digest
from poskernel_core.models.stored import MANIFEST, Attached, attached_places, stored_models

LAB = "POSKERNEL_LAB"
"""What a dashboard is told that computes in a notebook's process: the number of its socket, and
the fingerprint of the model there."""

SAME = ("config", "geometry")
"""What the versions of a model share, with the word of their tokenizer."""

in_hand: set[str] = set(os.environ.get(LAB, "").split()[1:])
"""The fingerprints of the models that this process can run."""

tokenizers_in_hand: dict[str, Any] = {}
"""Their tokenizers, by fingerprint: the files of a name are those of whoever attached it last."""


def attached(name: str) -> Attached | None:
    """Return what is known of an attached model, or of a logged training run, by its name."""
    model = stored_models().get(name)
    return None if model is None else model.attached


def folder_of(name: str) -> Path:
    """Return the folder of a name."""
    return attached_places() / sha256(name.encode()).hexdigest()[:16]


def describe(about: Mapping[str, Any], files: Mapping[str, str] = {}) -> None:
    """Keep the description of a model, with its tokenizer's files.

    Versions that are known by the same name are kept if they differ in their weights alone.
    """
    with _alone():
        folder, before = folder_of(about["model"]["name"]), description(about["model"]["name"])
        manifest = json.loads(json.dumps(about))
        word = about["attached"]["word"]
        if all(before.get(f) == manifest[f] for f in SAME) and before["attached"]["word"] == word:
            versions = before["attached"]["versions"] | manifest["attached"]["versions"]
            manifest["attached"] = manifest["attached"] | {"versions": versions}
        if manifest == before and all((folder / name).is_file() for name in files):
            return
        for name, text in (*files.items(), (MANIFEST, json.dumps(manifest))):
            write_file(folder / name, text)


def change(name: str, **fields: Any) -> None:
    """Change fields of a description that is kept."""
    with _alone():
        write_file(folder_of(name) / MANIFEST, json.dumps(description(name) | fields))


@contextmanager
def _alone() -> Iterator[None]:
    """Let nobody else change descriptions meanwhile, if any can be written."""
    with ExitStack() as stack:
        with suppress(OSError):
            default_directory().mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(attached_places().with_suffix(".lock")))
        yield


def description(name: str) -> dict[str, Any]:
    """Return the description of a name, as it is kept and exported; empty if there is none."""
    with suppress(OSError, ValueError, BadRequest):
        return read_object(folder_of(name) / MANIFEST)
    return {}


def versions_of(name: str) -> list[str]:
    """Return the fingerprints of an attached model's versions; [] of other models."""
    kept = attached(name)
    return (
        list(dict.fromkeys(version.fingerprint for version in kept.versions.values()))
        if kept
        else []
    )


def steps_of(name: str) -> dict[str, int]:
    """Return the steps of a logged training run by their revisions, in order; {} of others."""
    kept = attached(name)
    steps = {revision: version.step for revision, version in kept.versions.items()} if kept else {}
    return {
        revision: s
        for revision, s in sorted(steps.items(), key=lambda e: e[1] or 0)
        if s is not None
    }


def forget(name: str, steps: Collection[int] | None = None) -> None:
    """Take steps off a training run, or all of them; their results are evicted in their time."""
    with _alone():
        manifest = description(name)
        versions = manifest["attached"]["versions"].items()
        kept = {
            revision: v for revision, v in versions if steps is not None and v["step"] not in steps
        }
        manifest["attached"]["versions"] = kept
        write_file(folder_of(name) / MANIFEST, json.dumps(manifest))


def _noted(identity: str) -> Path:
    return default_directory() / "identities" / f"{digest(identity)}.json"


def note_identity(identity: str, model: ModelSpec) -> None:
    """Note that an object of this identity has the results of a model, if that can be written."""
    with suppress(OSError, BadRequest):
        write_file(_noted(identity), model.model_dump_json())


def model_of(identity: str) -> ModelSpec | None:
    """Return the model whose results an object of this identity has; None if it is new."""
    with suppress(OSError, ValueError, BadRequest):
        return ModelSpec.model_validate_json(_noted(identity).read_bytes())
    return None
