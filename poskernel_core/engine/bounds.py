"""Limits on a client's new work, checked before anything is queued.

Stored results and joined jobs cost nothing; only new computations count.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from poskernel_core.analyses.base import Experiment
from poskernel_core.common.errors import Busy, TooLarge
from poskernel_core.common.rounding import counted
from poskernel_core.common.settings import Settings
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS, RunSpec
from poskernel_core.engine.execute import missing_runs
from poskernel_core.engine.requests import CanonicalRequest
from poskernel_core.storage.statistics import windows_of
from poskernel_core.storage.store import Store

WAY_OUT = "choose fewer, or compute them on your own machine."


def check_open(jobs: Iterable[Mapping[str, str]], person: str, quotas: Settings) -> None:
    """Check that a person may have one more job.

    Args:
        jobs: the clients of each open job, as client -> person.
        person: the owner of the new job.
        quotas: the limits of this server.

    Raises:
        Busy: this person, or all persons together, have too many open jobs.
    """
    people = [set(waiting.values()) - {""} for waiting in jobs]
    own, every = sum(person in each for each in people), sum(map(bool, people))
    if own >= quotas.max_jobs:
        raise Busy(
            f"This server keeps up to {counted(quotas.max_jobs, 'computation')} of one reader at a "
            f"time, and {own:,} of yours wait or run: ask again when some of them are done, or "
            "cancel some."
        )
    if every >= quotas.max_jobs_total:
        raise Busy(
            f"This server keeps up to {counted(quotas.max_jobs_total, 'computation')} at a time, "
            f"and {every:,} of its readers' wait or run: ask again in a few minutes."
        )


def check_size(store: Store, asked: CanonicalRequest, quotas: Settings) -> None:
    """Check that a new request is within the size limits of this server.

    Raises:
        TooLarge: too many windows, tokens or samples, or a text that is too long.
        BadRequest: the parameters do not fit the run.
    """
    _check_texts(asked, quotas.max_characters)
    if quotas.max_windows is None and quotas.max_tokens is None and quotas.max_samples is None:
        return
    passes: dict[RunSpec, None] = {}
    tokens = 0
    for part in asked.parts().values() or [asked]:
        if store.has(part.key):
            continue
        passes.update(dict.fromkeys(map(windows_of, missing_runs(store, part))))
        if part.experiment is not None:
            tokens += _tokens_of(part, part.experiment, quotas)
    for run in passes:
        _check("window", run.windows, quotas.max_windows)
    tokens += sum(run.windows * run.context for run in passes)
    if quotas.max_tokens is not None and tokens > quotas.max_tokens:
        raise TooLarge(
            f"This server reads up to {counted(quotas.max_tokens, 'token')} for one computation, "
            f"and this one needs up to {tokens:,} (windows times context): choose fewer windows or "
            "a shorter context, or compute it on your own machine."
        )


def _tokens_of(part: CanonicalRequest, experiment: Experiment[Any], quotas: Settings) -> int:
    """Return how many tokens an experiment reads, not counting those of the passes."""
    if experiment.draws:
        _check("sample", part.run.windows, quotas.max_samples)
    else:
        _check("window", experiment.reads(part.run, part.params).windows, quotas.max_windows)
    return experiment.tokens(part.run, part.params)


def _check(what: str, number: int, most: int | None) -> None:
    if most is not None and number > most:
        raise TooLarge(
            f"This server computes up to {counted(most, what)} at a time; {number:,} were asked "
            f"for: {WAY_OUT}"
        )


def _check_texts(asked: CanonicalRequest, most: int) -> None:
    texts = [asked.run.corpus.text or ""]
    for name, field in type(asked.params).model_fields.items():
        longest = [getattr(each, "max_length", None) for each in field.metadata]
        if MAX_TEXT_CHARACTERS in longest:  # a typed text, not a list of heads
            texts.append(getattr(asked.params, name) or "")
    length = max(map(len, texts))
    if length > most:
        raise TooLarge(
            f"This server reads typed texts of up to {counted(most, 'character')}, got {length:,}: "
            "shorten it, or compute it on your own machine."
        )
