"""The errors that users can see; each message is one clear sentence.

Exit codes: 2 for :class:`BadRequest` and what derives from it, 1 for all others. Functions that are
not in the package's own ``__all__`` may raise these without saying so in their docstrings.
A message says what was expected, what was given, and what to do.
"""

from typing import ClassVar

NO_START = "start_token=False"
"""What an error says of a run without a start token; other doors put their own words there."""


class PosKernelError(Exception):
    """Base of all errors that PosKernel raises on purpose."""

    exit_code: ClassVar[int] = 1
    passing: ClassVar[bool] = True
    """Whether the same request may succeed later."""


class BadRequest(PosKernelError):
    """The request cannot be carried out; the message says what to change."""

    exit_code = 2
    passing = False


class ComputeDisabled(BadRequest):
    """Computing is off (read-only, no torch or no weights); only stored results are shown."""


class NotInModel(BadRequest):
    """The model, or partial model, lacks what a question needs."""


class UnknownModel(BadRequest):
    """A model name, directory or file that does not exist."""


class UnsupportedModel(BadRequest):
    """A model whose position scheme or file format PosKernel does not support."""


class NoNetwork(BadRequest):
    """A model or corpus must be read from the hub, which cannot be reached."""

    passing = True


class UnknownCorpus(BadRequest):
    """A corpus, file or named text that does not exist or cannot be read."""


class TooLittleText(BadRequest):
    """A corpus with fewer windows than requested."""


class UnknownAnalysis(BadRequest):
    """An analysis that is not registered."""


class InvalidField(BadRequest):
    """A field of a description has an invalid value.

    Attributes:
        of: what is described, such as ``run``.
        field: the field, and places in it, with dots between.
    """

    of: str = ""
    field: str = ""


class UnknownField(BadRequest):
    """A run has no field of that name."""


class BadArchive(BadRequest):
    """A file given to ``import`` that is not a PosKernel archive, or is damaged."""


class TooLarge(BadRequest):
    """More than this server computes for a client; a local installation has no such limit."""


class Busy(BadRequest):
    """Too many open computations; the request can be retried later."""

    passing = True


class StoreFailed(PosKernelError):
    """The store cannot be read or written; clients see the message, so it names no directory."""


class NoSpace(StoreFailed):
    """The disk that holds the store is full."""


class ReadOnlyStore(StoreFailed):
    """The store's directory is not writable: stored results are shown, nothing is computed."""


class Cancelled(PosKernelError):
    """The computation was cancelled."""


class ComputeFailed(PosKernelError):
    """The computation failed."""


class TooSmall(ComputeFailed):
    """The store has no room for what a pass gathers; no text was read."""

    passing = False


def by_name(name: str) -> type[PosKernelError]:
    """Return the error class called ``name``, to recreate an error of a worker process."""
    error_class = globals().get(name)
    if isinstance(error_class, type) and issubclass(error_class, PosKernelError):
        return error_class
    return ComputeFailed
