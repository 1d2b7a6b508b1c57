"""List models, locate their files and read their configuration.

Nothing here imports torch, so that pages can list and describe models quickly.
:mod:`poskernel_core.forward.loading` loads the weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from poskernel_core.common.errors import (
    BadArchive,
    BadRequest,
    ComputeDisabled,
    NoNetwork,
    PosKernelError,
    UnknownModel,
    UnsupportedModel,
)
from poskernel_core.common.files import MAX_JSON_BYTES, read_object
from poskernel_core.common.folders import default_directory
from poskernel_core.common.modules import installed_file
from poskernel_core.common.outside import outside
from poskernel_core.common.renamed import MODELS as RENAMED
from poskernel_core.common.settings import settings
from poskernel_core.common.specs import AnyModel, ModelSpec, brief, default_positions
from poskernel_core.models import gguf
from poskernel_core.models.attached import attached, in_hand
from poskernel_core.models.checkpoints import local_checkpoints
from poskernel_core.models.configuration import read_geometry
from poskernel_core.models.curated import BUNDLED_MODELS, CURATED, ModelEntry
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.gguf_config import model_config
from poskernel_core.models.hub import commit_here, fetch_file, file_here, weight_sizes
from poskernel_core.models.positions import PositionUse, angles_by_length, position_use
from poskernel_core.models.stored import (
    PACKAGED,
    Shown,
    StoredModel,
    is_archive,
    packaged_file,
    read,
    stored_models,
    title_of,
)
from poskernel_core.models.tokenizer_files import (
    first_files,
    other_files,
    reading,
    reading_of_gguf,
    reading_on_hub,
)
from poskernel_core.models.weights import check_enough, check_weights

TABLE = "tools/model_registry/data/model_aliases.json"
"""The short names, such as ``gpt2-small``, in transformer_lens; read without importing it."""

MAX_NAME = 1024
LISTED = 24
"""Most checkpoints named in the error about an unknown one."""

MAX_INDEX_BYTES = 100 * 2**20
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
INDEX_ENDING = ".safetensors.index.json"
ADAPTER = "adapter_config.json"
REVISION = re.compile(r"[A-Za-z0-9][\w.\-]{0,63}")
OWN_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,63}")
"""The form of the names of models that are objects."""
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.ckpt.index", "*.pth", "*.pt")


@dataclass(frozen=True)
class Located:
    """A model whose files have been found.

    Attributes:
        spec: name, revision and fingerprint (SHA-256 of the files, or the hub's commit).
        directory: directory of the files, or None for a hub model not yet downloaded. Files
            converted from a GGUF file are written there when they are first needed.
        config: the model's ``config.json``.
        geometry: layers, heads and positions, read from the configuration.
        gguf: the model's GGUF file, or None.
        quantisation: common name of the GGUF file's weight format: ``Q4_K_M``.
        shown: the run shown first, for a model with stored results.
        away: how to get the weights, if only results are on this machine; else empty.
        positions: how the running model was seen to use positions; ``geometry`` says so too. None
            if the model was never loaded, and ``geometry`` is as the configuration lets expect.
    """

    spec: ModelSpec
    directory: Path | None
    config: dict[str, Any]
    geometry: Geometry
    gguf: Path | None = None
    quantisation: str = ""
    shown: Shown | None = None
    away: str = ""
    positions: PositionUse | None = None

    @property
    def title(self) -> str:
        """What readers call the model."""
        return title_of(self.spec.name, self.spec.fingerprint)

    def usual_positions(self, context: int, *also: int) -> tuple[int, ...]:
        """Return the query positions that a run records by default, and ``also``.

        Raises:
            BadRequest: a position of ``also`` lies outside the context.
        """
        return default_positions(context, *also, step=self.usual_step(context))

    def usual_step(self, context: int) -> int:
        """Return of how many usual positions one is recorded; as in its results if it is away."""
        there = self.shown if self.away else None
        if there is not None and there.context == context:
            return there.step
        return self.geometry.usual_step(context)

    def probed(self, use: PositionUse) -> Located:
        """Return the model with positions as they were seen in the running model."""
        return replace(self, geometry=use.corrected(self.geometry), positions=use)


OTHERS_ADVICE = "ask for the model itself, by its directory or its name on the hub"
"""Advice for a model with results only, if no package provides its weights."""


def entries() -> tuple[ModelEntry, ...]:
    """Return the listed models: those of ``POSKERNEL_MODELS``, then the curated ones.

    Models that are objects, or were, are the last.
    """
    here = stored_models()
    curated = {
        entry.name: entry
        for entry in CURATED
        if entry.name not in PACKAGED or entry.name in here or _has_files(entry.name)
    }
    own = map(name_in, map(str.strip, os.environ.get("POSKERNEL_MODELS", "").split(",")))
    attached_ones = (model.spec.name for model in here.values() if model.attached is not None)
    names = dict.fromkeys(filter(None, (*own, *curated, *attached_ones)))
    return tuple(curated.get(name, ModelEntry(name, "", "", "")) for name in names)


def is_listed(name: str) -> bool:
    """Return whether a model is one of the list."""
    names = {entry.name for entry in entries()}
    # a model is called by its official name
    return RENAMED.get(name, name) in names or name in map(official_name, names)


def _check_offered(name: str) -> None:
    """Refuse other names if they come from outside; called before any look at the disk."""
    if outside() and not (settings().allow_any_model or is_listed(name)):
        listed = ", ".join(entry.name for entry in entries())
        raise UnknownModel(f"There is no such model here: expected one of {listed}.")


def title_here(name: str) -> str:
    """Return what readers call the model that has a name here, without a look at the hub."""
    if name in PACKAGED and (kept := _results_alone(name)):
        return title_of(name, kept.spec.fingerprint)
    return PACKAGED[name].title if packaged_file(name) else name


def name_in(text: str) -> str:
    """Return a model's name, given that name, an old one, or an archive of its results."""
    with suppress(BadArchive):
        if is_archive(text):
            return read(Path(text).expanduser()).spec.name
    return text if os.path.isdir(text) else RENAMED.get(text, text)


def note_of(name: str) -> str:
    """Return the caveat about a model's numbers; empty for most models."""
    if quantisation := quantisation_of(name):
        note = gguf.quantisation_note(quantisation)
        return f"{note}." if note else ""
    if (known := attached(name)) is not None:
        return known.note
    return next((entry.note for entry in CURATED if entry.name == name), _weights_left(name))


def _weights_left(name: str) -> str:
    """Return which weights of a directory are not run; empty if all are."""
    directory = local_directory(name)
    if directory is not None:
        with suppress(PosKernelError, OSError):
            run = weight_files(name, directory)
            left = sorted(f.name for f in directory.glob("*.safetensors") if f not in run)
            return f"Runs {run[0].name}, not {', '.join(left[:3])}." if left else ""
    return ""


def quantisation_of(name: str) -> str:
    """Return the weight format of a GGUF model; empty for other models."""
    file = local_directory(name)
    if file is None:
        kept = _results_alone(name)
        return kept.quantisation if kept else ""
    try:
        return gguf.read_header(name, file).quantisation if gguf.is_gguf(str(file)) else ""
    except PosKernelError:
        return ""


def to_download(names: Iterable[str]) -> set[str]:
    """Return those of several models of which neither weights nor results are on this machine."""
    stored = stored_models()
    return {
        name
        for name in names
        if name not in stored and not _has_files(name) and commit_here(name, None) is None
    }


def download_bytes(located: Located) -> int:
    """Return how many bytes of weights have to be downloaded before a model can run.

    Raises:
        BadRequest: the hub cannot be reached.
    """
    name, commit = located.spec.name, located.spec.fingerprint
    if located.directory is not None or located.away or is_local(name):
        return 0
    sizes = weight_sizes(name, commit)
    return sum(size for file, size in sizes.items() if file_here(name, file, commit) is None)


def is_local(name: str) -> bool:
    """Tell whether a model or its stored results are on this machine (no network needed)."""
    _check_offered(name)
    return _has_files(name) or _results_alone(name) is not None


def _has_files(name: str) -> bool:
    return (
        name in BUNDLED_MODELS
        or os.path.isdir(os.path.expanduser(name))
        or gguf.is_gguf(name.strip())
        or packaged_file(name) is not None
    )


def local_directory(name: str) -> Path | None:
    """Return the path of a bundled model or of a model named by its path; None for hub models."""
    directory = BUNDLED_MODELS.get(name) or packaged_file(name)
    path = name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name
    if directory is None and (path or os.path.isdir(name) or gguf.is_gguf(name)):
        directory = Path(os.path.expanduser(name))
    return directory


def find_again(spec: ModelSpec) -> Located:
    """Locate a model again at the commit or checkpoint of an earlier :func:`locate`."""
    return locate(spec.name, spec.revision if is_local(spec.name) else spec.fingerprint)


def check_files_unchanged(located: Located) -> None:
    """Check, once the files of a model have been read, that they are still those located.

    Raises:
        BadRequest: they were changed.
    """
    if find_again(located.spec).spec.fingerprint != located.spec.fingerprint:
        raise BadRequest(f"The files of {located.spec.name!r} changed meanwhile: ask again.")


def locate(model: AnyModel, revision: str | None = None) -> Located:
    """Find a model by bundled name, directory, GGUF file, hub name or transformer_lens' short name.

    A :class:`ModelSpec` is located by its name and revision. In a directory of checkpoints, each
    checkpoint is a revision; the last one is the default.
    """
    spec = ModelSpec.model_validate(model)
    if revision is not None:
        spec = ModelSpec(name=spec.name, revision=revision)
    name, revision = spec.name.strip(), spec.revision
    _check_offered(name)
    if not name:
        raise UnknownModel("Expected a model name or directory, got nothing: try 'demo-gpt2'.")
    if len(name) > MAX_NAME:
        raise UnknownModel(
            f"A model's name or directory has up to {MAX_NAME} characters, got {len(name)}: "
            f"{name[:40]!r} and more."
        )
    if is_archive(name):
        name = read(Path(name).expanduser()).spec.name
    if (kept := _results_alone(name)) is not None:
        return as_probed(_locate_results(kept, revision))
    if (directory := local_directory(name)) is not None:
        return as_probed(_locate_local(name, directory, revision))
    if name in RENAMED:
        return locate(RENAMED[name], revision)
    return as_probed(_locate_on_hub(official_name(name), revision))


def _results_alone(name: str) -> StoredModel | None:
    """Return the stored results of a model whose weights are not on this machine, or None."""
    kept, directory = stored_models().get(name), local_directory(name)
    if kept is not None and kept.attached is not None:
        return kept  # whatever folder has this name
    here = os.path.exists(directory) if directory else kept and commit_here(name, None)
    return None if here else kept


def _locate_attached(kept: StoredModel, revision: str | None) -> Located:
    assert kept.attached is not None
    assert kept.geometry is not None
    name, versions = kept.spec.name, kept.attached.versions
    chosen = revision or kept.spec.revision or ""
    if chosen not in versions:
        raise UnknownModel(
            f"No version {chosen!r} of {name!r} was attached: expected one of "
            f"{', '.join([*versions][-LISTED:])}."
        )
    of_version = {"revision": chosen, "fingerprint": versions[chosen].fingerprint}
    spec, config = kept.spec.model_copy(update=of_version), dict(kept.config)
    if spec.fingerprint in in_hand:
        return Located(spec, kept.file, config, kept.geometry)
    how = "ask its lab in the process that has the model (lab.show, lab.serve)"
    return Located(spec, kept.file, config, kept.geometry, shown=kept.shown, away=how)


def _locate_results(kept: StoredModel, revision: str | None) -> Located:
    if kept.attached is not None:
        return _locate_attached(kept, revision)
    if revision not in (None, kept.spec.revision, kept.spec.fingerprint):
        raise UnknownModel(
            f"Only results of {kept.spec.name!r} are here, and none of revision {revision!r}: "
            "leave it out."
        )
    config, packaged = dict(kept.config), PACKAGED.get(kept.spec.name)
    geometry = kept.geometry or read_geometry(kept.spec.name, config)
    how = packaged.advice if packaged else OTHERS_ADVICE
    spec = _spec(config, **kept.spec.model_dump(exclude={"angles"}))
    located = Located(spec, None, config, geometry, None, kept.quantisation, kept.shown, how)
    return located if kept.positions is None else located.probed(kept.positions)


def _spec(config: dict[str, Any], **fields: Any) -> ModelSpec:
    """Return a model's specification, which says whether its angles depend on the length."""
    return ModelSpec(**fields, angles="by length" if angles_by_length(config) else None)


def as_probed(located: Located) -> Located:
    """Return a model with the positions that were seen when it was loaded, if it ever was."""
    use = position_use(located.spec.fingerprint)
    return located if use is None else located.probed(use)


def check_weights_here(located: Located) -> None:
    """Check that a model's weights are available, so that it can be run."""
    if located.away:
        raise ComputeDisabled(
            f"Only results of {located.spec.name!r} are here, and this is not among them: to "
            f"compute it, {located.away}."
        )


def _locate_local(name: str, directory: Path, revision: str | None) -> Located:
    if gguf.is_gguf(str(directory)):
        return _locate_gguf(name, directory, revision)
    own = os.path.isfile(directory / "config.json")
    if own and not revision:
        return _locate_directory(name, directory, None)
    kept = [checkpoint.revision for checkpoint in local_checkpoints(directory)]
    if revision and not kept:
        raise UnknownModel(
            f"A local model has no revisions, unless it is a directory of checkpoints: leave out "
            f"revision {revision!r} for {name!r}."
        )
    if revision and revision not in kept:
        few = kept if len(kept) <= LISTED else [*kept[:LISTED], "...", kept[-1]]
        raise UnknownModel(
            f"No checkpoint {revision!r} in {name!r}: expected one of {', '.join(few)}."
        )
    chosen = revision or (kept[-1] if kept else None)
    return _locate_directory(name, directory / (chosen or ""), chosen)


def _locate_gguf(name: str, file: Path, revision: str | None) -> Located:
    if revision:
        raise UnknownModel(f"A GGUF file has no revisions: leave out {revision!r} for {name!r}.")
    header = gguf.read_header(name, file)
    config = model_config(name, file, header)
    geometry = read_geometry(name, config)
    check_enough(name, header.numbers, geometry.numbers)
    print_, tokenizer = gguf.fingerprint(file), reading_of_gguf(header.values)
    spec = _spec(config, name=name, fingerprint=print_, tokenizer=tokenizer)
    directory = default_directory().absolute() / "models" / spec.fingerprint
    kept = stored_models().get(name)
    default_run = kept.shown if kept and kept.spec.fingerprint == spec.fingerprint else None
    return Located(spec, directory, config, geometry, file, header.quantisation, default_run)


def _locate_directory(name: str, directory: Path, revision: str | None) -> Located:
    if not os.path.isfile(directory / "config.json"):
        names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
        gguf_file = next(
            filter(gguf.is_gguf, (str(directory / filename) for filename in names)), None
        )
        advice = f": name the GGUF file itself, {gguf_file!r}" if gguf_file else ""
        raise UnknownModel(
            f"Expected a model directory with config.json and {WEIGHTS}; "
            f"{name!r} has no config.json{advice}."
        )
    config = read_config(name, directory / "config.json")
    weights = weight_files(name, directory)
    geometry = read_geometry(name, config)
    check_weights(name, weights, geometry.numbers)
    total = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for file in (*weights, *first_files(directory)):
        total.update(bytes.fromhex(gguf.fingerprint(file)))
    for file in other_files(directory):
        total.update(f"{file.relative_to(directory)}:{gguf.fingerprint(file)}".encode())
    print_, tokenizer = total.hexdigest(), reading(directory)
    spec = _spec(config, name=name, revision=revision, fingerprint=print_, tokenizer=tokenizer)
    return Located(spec, directory, config, geometry)


def is_taken(name: str) -> bool:
    """Return whether a name is that of a model which is no object: bundled, listed, or short."""
    listed = {entry.name for entry in CURATED}
    return name in listed or name in BUNDLED_MODELS or official_name(name) != name


def official_name(name: str) -> str:
    """Return the hub name for a short name (case-insensitive); return other names unchanged."""
    return _aliases().get(name.lower(), name)


@cache
def _aliases() -> dict[str, str]:
    file = installed_file("transformer_lens", TABLE)
    table = json.loads(file.read_text(encoding="utf-8"))["aliases"] if file else {}
    return {alias.lower(): name for name, aliases in table.items() for alias in aliases}


def _locate_on_hub(name: str, revision: str | None) -> Located:
    if revision and (".." in revision or not REVISION.fullmatch(revision)):
        raise UnknownModel(
            f"A revision is a branch, tag or commit such as 'main' or 'step1000', not {revision!r}."
        )
    path = fetch_file(name, "config.json", revision)
    config = read_config(name, path)
    commit, tokenizer = path.parent.name, None
    with suppress(NoNetwork):
        tokenizer = reading_on_hub(name, config, commit)
    spec = _spec(config, name=name, revision=revision, fingerprint=commit, tokenizer=tokenizer)
    return Located(spec, None, config, read_geometry(name, config))


def read_config(name: str, path: Path, most: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the fields of a JSON file of a model."""
    try:
        return read_object(path, most)
    except (OSError, ValueError) as error:
        raise UnsupportedModel(
            f"The {path.name} of {name!r} is not a JSON object ({error}): check the file."
        ) from error


def weight_files(name: str, directory: Path) -> list[Path]:
    """Return the safetensors files of a model directory, as transformers chooses them."""
    entry = weights_entry(name, directory)
    files = [entry]
    if entry.name.endswith(INDEX_ENDING):
        files = [directory / shard for shard in _shards(name, entry)]
    missing = [file.name for file in files if not file.is_file()]
    if not missing:
        return files
    if any(list(directory.glob(pattern)) for pattern in PICKLED):
        raise UnsupportedModel(
            f"{name!r} has pickled weights only, which can run code when opened: "
            f"convert them to {WEIGHTS} (save_pretrained does) and try again."
        )
    raise UnknownModel(f"Expected {missing[0]} in model directory {name!r}, but it is missing.")


def weights_entry(name: str, directory: Path) -> Path:
    """Return the file of a directory that transformers opens first: the weights, or their index."""
    if (directory / ADAPTER).is_file():
        raise UnsupportedModel(
            f"{name!r} has an adapter ({ADAPTER}), which transformers may put on its weights: save "
            "the model with the adapter merged, or attach it (pk.attach)."
        )
    named = read_config(name, directory / "config.json").get("transformers_weights")
    if named is None:
        weights, index = directory / WEIGHTS, directory / INDEX
        return weights if weights.is_file() or not index.is_file() else index
    path = Path(named) if isinstance(named, str) and "\0" not in named else Path()
    fits = path.name.endswith((".safetensors", INDEX_ENDING))
    if not fits or path.is_absolute() or ".." in path.parts:
        raise UnsupportedModel(
            f"Expected 'transformers_weights' in the config.json of {name!r} to name a safetensors "
            f"file in the directory, or an index of such files, got {brief(named)}."
        )
    return directory / path


def _shards(name: str, index: Path) -> list[str]:
    listed = read_config(name, index, MAX_INDEX_BYTES).get("weight_map")
    files = list(listed.values()) if isinstance(listed, dict) else []
    fit = (
        isinstance(file, str) and 0 < len(file) < MAX_NAME and "\0" not in file for file in files
    )
    if not files or not all(fit) or any(Path(file).name != file for file in files):
        raise UnsupportedModel(
            f"Expected the {index.name} of {name!r} to have a 'weight_map' from tensors to files "
            "next to it: check the file."
        )
    return sorted(set(files))
