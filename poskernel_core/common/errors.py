"""Every error that a user can meet, each one clear sentence.

::

    PosKernelError
    ├── BadRequest                what was asked for cannot be done (exit code 2)
    │   ├── UnknownModel          no such name, directory or file
    │   ├── UnsupportedModel      a position scheme or file format that is not read
    │   ├── NoNetwork             the hub cannot be reached
    │   ├── ComputeDisabled       no torch here: stored results are shown, nothing is computed
    │   ├── NotInModel            a part of a model lacks what a question needs
    │   ├── UnknownCorpus         no such corpus, file or text
    │   ├── TooLittleText         fewer windows than were asked for
    │   ├── UnknownAnalysis       no such analysis
    │   ├── UnknownField          a run has no field of that name
    │   ├── InvalidField          a field of a run has a value that it cannot have
    │   ├── BadArchive            an import file that is not ours, or is damaged
    │   ├── TooLarge              more than this server computes for a visitor
    │   └── Busy                  too many computations are waiting already
    ├── StoreFailed               the store cannot be read or written (exit code 1)
    │   ├── NoSpace               the disk is full
    │   └── ReadOnlyStore         what is stored can be shown, nothing new can be kept
    ├── Cancelled                 somebody pressed cancel
    └── ComputeFailed             the computation broke (exit code 1)

A message says what was expected, what came, and what to do.
"""

from __future__ import annotations

__all__ = [
    "BadArchive",
    "BadRequest",
    "Busy",
    "Cancelled",
    "ComputeDisabled",
    "ComputeFailed",
    "InvalidField",
    "NoNetwork",
    "NoSpace",
    "NotInModel",
    "PosKernelError",
    "ReadOnlyStore",
    "StoreFailed",
    "TooLarge",
    "TooLittleText",
    "UnknownAnalysis",
    "UnknownCorpus",
    "UnknownField",
    "UnknownModel",
    "UnsupportedModel",
    "by_name",
]


class PosKernelError(Exception):
    """Base of all errors that PosKernel raises on purpose."""


class BadRequest(PosKernelError):
    """The request cannot be met as it stands; the message says what to change."""


class ComputeDisabled(BadRequest):
    """There is no torch here: stored results are shown, nothing new is computed."""


class NotInModel(BadRequest):
    """A part of a model lacks what a question needs."""


class UnknownModel(BadRequest):
    """A model name, directory or file that does not exist."""


class UnsupportedModel(BadRequest):
    """A model whose position scheme or file format PosKernel does not read."""


class NoNetwork(BadRequest):
    """Something lives on the hub, and the hub cannot be reached."""


class UnknownCorpus(BadRequest):
    """A corpus, file or named text that does not exist or cannot be read."""


class TooLittleText(BadRequest):
    """A corpus that holds fewer windows than were asked for."""


class UnknownAnalysis(BadRequest):
    """An analysis that is not registered."""


class InvalidField(BadRequest):
    """A field of a run has a value that it cannot have."""


class UnknownField(BadRequest):
    """A run has no field of that name."""


class BadArchive(BadRequest):
    """A file given to ``import`` that is not an archive of ours, or is damaged."""


class TooLarge(BadRequest):
    """More than this server computes for a visitor; one's own machine has no such bound."""


class Busy(BadRequest):
    """Too many computations are waiting already; asking again in a moment helps."""


class StoreFailed(PosKernelError):
    """The store cannot be read or written; the message names no directory, visitors read it."""


class NoSpace(StoreFailed):
    """The disk that holds the store is full."""


class ReadOnlyStore(StoreFailed):
    """The store's directory cannot be written: stored results are shown, nothing is computed."""


class Cancelled(PosKernelError):
    """The computation was cancelled."""


class ComputeFailed(PosKernelError):
    """The computation broke; the message says where the log is."""


def by_name(name: str) -> type[PosKernelError]:
    """Return the error class called ``name`` (how a worker's error crosses a pipe)."""
    found = globals().get(name)
    if isinstance(found, type) and issubclass(found, PosKernelError):
        return found
    return ComputeFailed
