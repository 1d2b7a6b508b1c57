"""Access to the model hub: fetch a file or a snapshot, or raise an error in one clear sentence."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from poskernel_core.common.errors import BadRequest, NoNetwork, UnknownModel, UnsupportedModel

if TYPE_CHECKING:
    from huggingface_hub import CachedFileInfo, CachedRevisionInfo
    from huggingface_hub.hf_api import RepoSibling

CONNECT_SECONDS = 3.0
SAFE = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "tokenizer*", "*.jinja"]
WEIGHTS = ".safetensors"


@lru_cache(maxsize=1)
def _reachable_at(_minute: int) -> bool:
    """Tell whether the hub's host answers; cached for a minute by the argument."""
    from huggingface_hub import constants

    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")):
        return True
    host = urlsplit(constants.ENDPOINT)
    port = host.port or (80 if host.scheme == "http" else 443)
    try:
        socket.create_connection((host.hostname, port), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def offline() -> bool:
    """Tell whether nothing can be fetched: offline mode is set, or the hub does not answer."""
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE or not _reachable_at(int(time.monotonic() // 60))


def fetch_file(
    name: str, filename: str, revision: str | None, kind: Literal["model", "dataset"] = "model"
) -> Path:
    """Return the local path of one file of a hub repository, downloading it if necessary."""
    from huggingface_hub import hf_hub_download

    with _in_one_sentence(name, revision):
        path = hf_hub_download(
            name, filename, revision=revision, repo_type=kind, local_files_only=offline()
        )
    return Path(path)


def fetch_optional(name: str, filename: str, revision: str | None) -> Path | None:
    """Return the local path of a file as :func:`fetch_file`; None if the revision has none.

    What is on this machine is not asked for again, a branch's newer commit neither.

    Raises:
        NoNetwork: it is not here, and the hub cannot be reached.
    """
    from huggingface_hub import _CACHED_NO_EXIST, try_to_load_from_cache

    cached = try_to_load_from_cache(name, filename, revision=revision)
    if isinstance(cached, str):
        return Path(cached)
    with suppress(UnknownModel):
        return None if cached is _CACHED_NO_EXIST else fetch_file(name, filename, revision)
    return None


def fetch_snapshot(name: str, revision: str | None) -> Path:
    """Return the directory of a hub model's safetensors, configuration and tokenizer."""
    from huggingface_hub import snapshot_download

    with _in_one_sentence(name, revision):
        path = snapshot_download(
            name, revision=revision, allow_patterns=SAFE, local_files_only=offline()
        )
    directory = Path(path)
    if not list(directory.rglob("*.safetensors")):
        raise UnsupportedModel(
            f"The hub model {name!r} offers no safetensors at revision {revision or 'main'!r}; "
            "pickled weights are not opened: choose a revision with safetensors, or convert it."
        )
    return directory


def published(name: str, revision: str | None) -> tuple[tuple[str, str], ...]:
    """Return file name and SHA-256 of each safetensors file of a revision, as the hub says.

    It needs no download, and is empty if the hub lacks a hash.
    """
    weights = [
        (file.rfilename, file.lfs.sha256 if file.lfs else "")
        for file in _weights_there(name, revision)
    ]
    known = weights and all(sha for _, sha in weights)
    return tuple(sorted(weights)) if known else ()


def weight_sizes(name: str, revision: str | None) -> dict[str, int]:
    """Return the bytes of each safetensors file of a revision, as the hub says."""
    return {file.rfilename: file.size or 0 for file in _weights_there(name, revision)}


def _weights_there(name: str, revision: str | None) -> list[RepoSibling]:
    from huggingface_hub import HfApi

    if offline():
        raise NoNetwork(_no_network(name))
    with _in_one_sentence(name, revision):
        info = HfApi().model_info(name, revision=revision, files_metadata=True)
    return [file for file in info.siblings or () if file.rfilename.endswith(WEIGHTS)]


def revisions(name: str) -> tuple[str, ...]:
    """Return the branches and tags of a hub repository; if offline, those in the local cache."""
    from huggingface_hub import HfApi

    if offline():
        here = {ref for revision in _revisions_here(name) for ref in revision.refs}
        return tuple(sorted(here))
    with _in_one_sentence(name, None):
        refs = HfApi().list_repo_refs(name)
    return tuple(dict.fromkeys(ref.name for ref in (*refs.branches, *refs.tags)))


def _revisions_here(name: str) -> list[CachedRevisionInfo]:
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except CacheNotFound:
        return []
    return [
        revision
        for repository in repositories
        if repository.repo_id == name
        for revision in repository.revisions
    ]


def commit_here(name: str, revision: str | None) -> str | None:
    """Return the locally cached commit of a revision, or None; never uses the network.

    The hub may have moved the revision to another commit since.
    """
    file = file_here(name, "config.json", revision)
    return None if file is None else file.parent.name


def file_here(name: str, file: str, revision: str | None) -> Path | None:
    """Return a locally cached file of a hub model, or None; never uses the network."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(name, file, revision=revision)
    except (HFValidationError, OSError):
        return None
    return Path(path) if isinstance(path, str) else None


def weights_here(name: str, commit: str) -> frozenset[str]:
    """Return the names of the safetensors of a commit that are on this machine."""
    return frozenset(file.file_name for file in _files_here(name, commit))


def remove_weights(name: str, commit: str, keep: frozenset[str] = frozenset()) -> int:
    """Delete a commit's safetensors from the local cache, except ``keep``; return the bytes freed.

    Blobs that another cached commit shares are not deleted.
    """
    removed = [file for file in _files_here(name, commit) if file.file_name not in keep]
    others = [revision for revision in _revisions_here(name) if revision.commit_hash != commit]
    elsewhere = {file.blob_path for revision in others for file in revision.files}
    total = 0
    for file in removed:
        file.file_path.unlink(missing_ok=True)
        if file.blob_path not in elsewhere:
            file.blob_path.unlink(missing_ok=True)  # the same path if symlinks are unsupported
            total += file.size_on_disk
    return total


def _files_here(name: str, commit: str) -> list[CachedFileInfo]:
    return [
        file
        for revision in _revisions_here(name)
        if revision.commit_hash == commit
        for file in revision.files
        if file.file_name.endswith(WEIGHTS)
    ]


@contextmanager
def _in_one_sentence(name: str, revision: str | None) -> Iterator[None]:
    """Turn errors of the hub's library into our errors."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise UnknownModel(
            f"The hub model {name!r} is gated: accept its terms and set HF_TOKEN."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise UnknownModel(
            f"No model {name!r} on the hub: check the spelling, or give a local directory."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UnknownModel(f"The hub model {name!r} has no revision {revision!r}.") from error
    except errors.LocalEntryNotFoundError as error:
        raise NoNetwork(_no_network(name)) from error
    except errors.EntryNotFoundError as error:
        raise UnknownModel(f"The hub model {name!r} lacks a file that is needed.") from error
    except errors.HFValidationError as error:
        raise UnknownModel(
            f"No model {name!r}: expected a bundled name, an existing directory, "
            "or a hub name such as 'gpt2' or 'owner/model'."
        ) from error
    except PermissionError as error:
        raise BadRequest(
            f"Cannot use the cache of the model hub, {str(error.filename)!r}: {error.strerror}; "
            "point HF_HOME to a folder that you may read and write."
        ) from error
    except (OSError, errors.HfHubHTTPError) as error:
        raise NoNetwork(_no_network(name)) from error


def _no_network(name: str) -> str:
    return (
        f"The model hub cannot be reached and {name!r} is not on this machine: go online, point "
        "HF_HOME to a cache that holds it, or give a local directory; models that come with the "
        "project, such as 'demo-gpt2', work offline."
    )
