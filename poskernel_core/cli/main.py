"""The command line: ``poskernel``, or ``python -m poskernel_core``.

Exit codes: 0 done, 2 bad request (one sentence on standard error), 1 anything else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from poskernel_core.cli.commands import PROGRAM
from poskernel_core.cli.grammar import sentence
from poskernel_core.cli.terminal import complain, mute, open_streams
from poskernel_core.common.errors import BadRequest, ComputeFailed, PosKernelError, StoreFailed
from poskernel_core.storage.store import default_directory

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    open_streams()
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        _check_letters(given)
        with PROGRAM.make_context(PROGRAM.name, given) as context:
            PROGRAM.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as end:  # help was asked for, and given
        return end.exit_code
    except click.UsageError as error:
        complain(sentence(error))
        return 2
    except BadRequest as error:
        complain(error)
        return 2
    except (ComputeFailed, StoreFailed) as error:
        complain(f"{error} (The store, and its worker.log: {default_directory()}.)")
        return 1
    except PosKernelError as error:
        complain(error)
        return 1
    except KeyboardInterrupt:
        complain("Cancelled.")
        return 1
    except OSError:
        return _end_of_output()


def _end_of_output() -> int:
    """Return the exit code where standard output takes no more; raise an error of anything else."""
    try:
        print(flush=True)  # if it was another file that failed, this succeeds
    except BrokenPipeError:  # whoever read our output has read enough, as `head` does
        mute(sys.stdout)
        return 0
    except OSError as error:
        mute(sys.stdout)
        complain(f"Cannot write to standard output: {error.strerror}.")
        return 1
    raise


def _check_letters(arguments: Sequence[str]) -> None:
    """Refuse what cannot be the name of anything: bytes that are no UTF-8, and the zero byte."""
    for text in arguments:
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise BadRequest(f"Expected arguments in UTF-8, got {text[:80]!r}.")
