"""Carries out experiments: takes the model, cuts the text, runs the changes, stores the result.

It runs in the worker process.
"""

from __future__ import annotations

import time

from poskernel_core import compute
from poskernel_core.analyses.base import Subject
from poskernel_core.config import Execution, Request
from poskernel_core.prepare import locate_again, plan_header, random_source
from poskernel_core.progress import Report
from poskernel_core.workshop import Workshop

__all__ = ["perform"]


def perform(workshop: Workshop, request: Request, execution: Execution, report: Report) -> None:
    """Answer a request whose statistics are in the store, and write its result.

    Raises:
        BadRequest: the parameters do not fit the model or the text.
        Cancelled: raised by ``report``.
        StoreFailed: the result cannot be written.
    """
    began, run = time.monotonic(), request.run
    experiment, params = compute.experiment_of(request), compute.check_params(request)
    assert experiment is not None
    report(0, 0, "Loading the model")
    located = locate_again(run)
    tokenizer = workshop.tokenizer(located)
    cut = run.model_copy(update={"windows": 1}) if experiment.draws else run
    windows, plan = workshop.prepare(cut, execution, located, tokenizer)
    model = workshop.shelf.take(located, execution.device)
    decode = tokenizer.decode_each if tokenizer else lambda ids: [str(each) for each in ids]
    words = decode(windows[0].tolist())
    source = random_source(run, located.geometry, tokenizer)
    subject = Subject(
        model,
        windows,
        words,
        decode,
        run.start_token,
        source,
        execution.batch,
        tokenizer.single_id if tokenizer else None,
        tokenizer.encode if tokenizer else None,
    )
    views = compute.open_views(workshop.store, request)
    result = experiment.perform(
        subject, views, params, lambda done, total: report(done, total, experiment.title)
    )
    header = plan_header(plan, run, str(model.device))
    if experiment.draws:
        header["windows"] = run.windows
    elif len(windows) == 1:
        header["tokens"] = words
    compute.keep(workshop.store, request, result, header, time.monotonic() - began)
