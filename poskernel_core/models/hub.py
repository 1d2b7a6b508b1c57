"""The way to the model hub: one file or one snapshot, or one clear sentence."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from poskernel_core.common.errors import NoNetwork, UnknownModel, UnsupportedModel

__all__ = ["fetch_file", "fetch_snapshot", "offline", "on_this_machine"]

CONNECT_SECONDS = 3.0
SAFE = ["*.json", "*.safetensors", "*.txt", "*.model", "tokenizer*"]


@lru_cache(maxsize=1)
def _reachable_at(_minute: int) -> bool:
    """Tell whether the hub's host answers; asked again each minute."""
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
    """Tell whether nothing can be fetched: it is forbidden, or the hub does not answer."""
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE or not _reachable_at(int(time.monotonic() // 60))


def fetch_file(name: str, filename: str, revision: str | None) -> Path:
    """Return the local path of one file of a hub repository, downloading it if necessary.

    Raises:
        UnknownModel: no such repository, revision or file.
        NoNetwork: the hub cannot be reached and the file is not in the local cache.
    """
    from huggingface_hub import hf_hub_download

    return Path(
        _guarded(
            name,
            revision,
            lambda: hf_hub_download(name, filename, revision=revision, local_files_only=offline()),
        )
    )


def fetch_snapshot(name: str, revision: str | None) -> Path:
    """Return the directory of a hub model's safetensors, configuration and tokenizer.

    Raises:
        UnsupportedModel: the repository holds no safetensors.
        UnknownModel, NoNetwork: as for :func:`fetch_file`.
    """
    from huggingface_hub import snapshot_download

    directory = Path(
        _guarded(
            name,
            revision,
            lambda: snapshot_download(
                name, revision=revision, allow_patterns=SAFE, local_files_only=offline()
            ),
        )
    )
    if not list(directory.glob("*.safetensors")):
        raise UnsupportedModel(
            f"The hub model {name!r} offers no safetensors at revision {revision or 'main'!r}; "
            "pickled weights are not opened: choose a revision with safetensors, or convert it."
        )
    return directory


def on_this_machine(name: str) -> bool:
    """Tell whether a hub model's configuration is in the local cache; never uses the network."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    except (HFValidationError, OSError):
        return False


def _guarded(name: str, revision: str | None, call: Callable[[], str]) -> str:
    from huggingface_hub import errors

    try:
        return call()
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
    except (OSError, errors.HfHubHTTPError) as error:
        raise NoNetwork(_no_network(name)) from error


def _no_network(name: str) -> str:
    return (
        f"The model hub cannot be reached and {name!r} is not on this machine: go online, point "
        "HF_HOME to a cache that holds it, or give a local directory; "
        "'demo-gpt2' and 'demo-attn-2l' work offline."
    )
