"""``precompute`` and ``merge``: compute the pages' default results, here or on several machines."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from poskernel_core.api import answered, default_requests
from poskernel_core.cli.grammar import option, reader
from poskernel_core.cli.options import FILE, Run, RunCommand, device
from poskernel_core.cli.show import answer
from poskernel_core.cli.terminal import show_progress, status
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.files import is_folder
from poskernel_core.common.progress import Report
from poskernel_core.common.rounding import counted
from poskernel_core.common.shards import MAX_SHARDS, Shard, ShardTask
from poskernel_core.common.specs import Request, RunSpec
from poskernel_core.engine.admission import check_worker
from poskernel_core.engine.checkpoints import (
    Precomputing,
    or_left_out,
    precompute_checkpoints,
)
from poskernel_core.engine.distributed.shards import is_there, merge, run_here, tasks_of
from poskernel_core.engine.plan import make_plan, missing_passes
from poskernel_core.models.training import SCHEDULES, required_run
from poskernel_core.storage.archive import open_sources
from poskernel_core.storage.store import Store

ShardExecutor = Callable[[Sequence[ShardTask], Store, Report], None]
"""A function that computes shards: in this process, on several devices, or on a cluster."""


@dataclass(frozen=True)
class Sharing:
    """The options for sharing the work between devices or machines."""

    shard: Shard | None = None
    shards: int | None = None
    shard_files: Path | None = None
    devices: tuple[str, ...] | None = None
    cluster: str | None = None

    def check(self) -> None:
        """Check that the options are compatible."""
        ways = {"--shard": self.shard, "--devices": self.devices, "--cluster": self.cluster}
        given = [name for name, value in ways.items() if value is not None]
        if len(given) > 1:
            raise BadRequest(
                f"Give one of {' and '.join(given)}: each says who computes the shards."
            )
        if self.shard is not None and self.shards is not None:
            raise BadRequest(f"Give --shard {self.shard} or --shards {self.shards}, not both.")
        folder = self.shard_files
        if folder is not None and self.shard is None and self.cluster is None:
            raise BadRequest("--shard-files is for --shard and --cluster: say which.")
        if folder is not None and not is_folder(folder):
            kind = "a file" if os.path.isfile(folder) else "none"
            raise BadRequest(
                f"Expected a folder for the shards, found {kind} at {str(folder)!r}: make one "
                "there first."
            )

    def executor(self) -> tuple[int, ShardExecutor]:
        """Return the number of shards and the function that computes them."""
        if self.cluster is not None:
            # The package 'distributed' is optional.
            from poskernel_core.engine.distributed.cluster import run_on_cluster, workers_of

            return self.shards or workers_of(self.cluster), partial(run_on_cluster, self.cluster)
        if self.devices is not None:
            from poskernel_core.engine.distributed.devices import run_on_devices

            return self.shards or len(self.devices), partial(run_on_devices, self.devices)
        return self.shards or 1, run_here


_experiments = option(
    "--experiments", is_flag=True, help="also the experiments on random tokens, as shown first"
)
_training = partial(option, section="Over training")
_machines = partial(option, section="Several machines")
_shards = partial(_machines, "--shards", type=click.IntRange(1, MAX_SHARDS), metavar="N")


@click.command(cls=RunCommand)
@_experiments
@_training(
    "--revisions",
    metavar="LIST",
    help="checkpoints of its training, one after another: revisions between commas, all, log "
    f"(those nearest to powers of two), or a known schedule ({', '.join(SCHEDULES)})",
)
@_training(
    "--remove-weights",
    is_flag=True,
    help="remove the weights of each checkpoint again that this command has downloaded",
)
@_machines(
    "--shard",
    metavar="R/N",
    type=reader("a shard R/N such as 0/8 (R from 0 to N - 1)", Shard.read),
    help="compute this one shard alone, such as 0/8, the first of eight; 'merge' puts them "
    "together",
)
@_machines(
    "--shard-files",
    metavar="FOLDER",
    type=FILE,
    help="write each shard to a file in this folder, for machines without a common store",
)
@_shards(help="how many shards the work is cut into; one for each device or worker if not given")
@_machines(
    "--devices",
    metavar="LIST",
    type=lambda text: tuple(device(name.strip()) for name in text.split(",")),
    help="devices of this machine that share the work, such as cuda:0,cuda:1",
)
@_machines(
    "--cluster",
    metavar="ADDRESS",
    help="share the work among the workers of this Dask scheduler; needs the extra 'cluster'",
)
def precompute(
    run: Run, experiments: bool, revisions: str | None, remove_weights: bool, **given: Any
) -> None:
    """Run the pass and compute the standard results."""
    sharing = Sharing(**given)
    sharing.check()
    if sharing == Sharing() and revisions is not None:
        if run.revision is not None:
            raise BadRequest("Give --revision or --revisions, not both.")
        training = required_run(run.model).chosen(revisions)
        with closing(run.engine()) as engine:
            asked_of, answered = partial(_asked, run, experiments), partial(answer, engine)
            how = Precomputing(engine.store, asked_of, answered, status, remove_weights)
            precompute_checkpoints(training, how)
        return
    if sharing == Sharing():
        if remove_weights:
            raise BadRequest(
                "--remove-weights is for --revisions: say which checkpoints are computed."
            )
        _answer_all(run, _asked(run, experiments))
        return
    if revisions is not None or remove_weights:
        raise BadRequest(
            "--revisions is not cut into shards: give every machine checkpoints of its own."
        )
    if sharing.devices is not None:  # analyses run on the first device
        run = replace(run, device=sharing.devices[0])
    requests, passes = _asked_and_passes(run, experiments)
    shard, folder, (count, execute) = sharing.shard, sharing.shard_files, sharing.executor()
    chosen = [shard] if shard else [Shard(number=number, of=count) for number in range(count)]
    store, tasks = Store(), tasks_of(passes, chosen, run.execution(), folder)
    if not all(is_there(store, task) for task in tasks):
        check_worker()
    execute(tasks, store, _report)
    if shard is None:
        _merge(run, store, [folder] if folder else [], count, requests, passes)
    else:
        show_progress("")
        status(f"shard {shard}: computed")


@click.command("merge", cls=RunCommand)
@click.argument("sources", type=FILE, nargs=-1)
@_shards(required=True, help="how many shards the work was cut into")
@_experiments
def merge_shards(run: Run, sources: tuple[Path, ...], shards: int, experiments: bool) -> None:
    """Put shards together and compute the standard results.

    SOURCES are files, folders of files or stores that hold shards of 'precompute --shard'.
    """
    requests, passes = _asked_and_passes(run, experiments)
    _merge(run, Store(), sources, shards, requests, passes)


def _asked(run: Run, experiments: bool, checkpoint: str | None = None) -> list[Request]:
    at = run.fields() | ({} if checkpoint is None else {"revision": checkpoint})
    every = checkpoint is not None
    return default_requests(run.model, experiments=experiments, measures=every, **at)


def _answer_all(run: Run, requests: Sequence[Request]) -> None:
    with closing(run.engine()) as engine:
        for request, new in answered(engine, requests, partial(answer, engine), status):
            status(f"{request.analysis}: {'computed' if new else 'cached'}")


def _asked_and_passes(run: Run, experiments: bool) -> tuple[list[Request], list[RunSpec]]:
    requests, needed = _asked(run, experiments), list[RunSpec]()
    for request in requests:
        with or_left_out(request.analysis, status):
            needed += make_plan(request).needs.values()
    return requests, missing_passes(None, needed)


def _merge(
    run: Run,
    store: Store,
    sources: Sequence[Path],
    count: int,
    requests: Sequence[Request],
    passes: Sequence[RunSpec],
) -> None:
    with open_sources(sources) as opened:
        merged = merge(store, opened, passes, count, _report)
    show_progress("")
    if merged:
        status(f"{counted(count, 'shard')}: merged")
    else:
        status("the statistics were in the store already: nothing was merged")
    _answer_all(run, requests)


def _report(done: int, total: int, note: str) -> None:
    show_progress(f"{note} {done} of {total}" if total else note)
