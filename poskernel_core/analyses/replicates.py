"""Compute leave-one-group-out replicates side by side, and take errors from them."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from threading import Event, Lock

import numpy as np

from poskernel_core.common.errors import Cancelled
from poskernel_core.common.jackknife import bias, cross_fit, jackknife
from poskernel_core.common.result import Result, Value

GAP = " gap"
"""Behind the name of a distance: the differences ``[..., row]`` of the rows that it compares. A
replicate keeps their signs."""

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Cores that this process may use."""
POLLED = 0.1
"""Longest interval in seconds between progress reports, which also check for a cancel."""


class _OneBlasThread:
    """While any answer is computed, BLAS has one thread: matrices are small, and we have our own.

    The limit is process-wide: the first answer sets it and the last one lifts it, both in one
    thread, because threadpoolctl heeds only the thread that came first.
    """

    def __init__(self) -> None:
        self._lock, self._answers, self._thread = Lock(), 0, ThreadPoolExecutor(1)

    def __enter__(self) -> None:
        from threadpoolctl import ThreadpoolController  # imported only where something is computed

        with self._lock:
            if not self._answers:
                blas = ThreadpoolController().select(internal_api="openblas")
                limit = self._thread.submit(lambda: blas.limit(limits=1).__enter__())
                self._limit = limit.result()
            self._answers += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._answers -= 1
            if not self._answers:
                self._thread.submit(self._limit.__exit__, None, None, None).result()


_ONE_BLAS_THREAD = _OneBlasThread()


def computed(
    tasks: Sequence[Callable[[Callable[[int, int], None]], Result]],
    progress: Callable[[int, int], None],
) -> list[Result]:
    """Return the results of all tasks, in their order, computed on all cores.

    Each task gets a callback that raises Cancelled once another task, or ``progress``, has raised.
    """
    stop = Event()

    def go_on(_done: int, _total: int) -> None:
        if stop.is_set():
            raise Cancelled("Cancelled.")

    with _ONE_BLAS_THREAD, ThreadPoolExecutor(max_workers=CORES) as pool:
        work = [pool.submit(task, go_on) for task in tasks]
        left = set(work)
        try:
            while left:
                done, left = wait(left, timeout=POLLED, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                progress(len(work) - len(left), len(work))
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    return [future.result() for future in work]


def errors_and_biases(
    declared: Sequence[Value],
    full: Mapping[str, np.ndarray],
    without: Sequence[Mapping[str, np.ndarray]],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return jackknife errors and biases from the values without each group.

    Of a range, these are half of it, and what leads from the value to its middle.

    A distance whose rows are among the values (:data:`GAP`) is cross-fit: its bias is half of what
    it loses.
    """
    errors, biases = {}, {}
    for value in declared:
        if not value.has_interval or value.name not in full:
            continue
        estimate = full[value.name].astype(np.float64)
        replicates = np.array([one[value.name] for one in without], dtype=np.float64)
        replicates = np.where(
            np.isnan(estimate), np.nan, replicates.reshape(len(without), *estimate.shape)
        )
        if value.unit == "radians":  # unwrap to the nearest turn
            replicates = estimate + np.angle(np.exp(1j * (replicates - estimate)))
        errors[value.name], biases[value.name] = jackknife(replicates), bias(estimate, replicates)
        if value.kind == "range" and len(without) > 1:
            low, high = (
                np.minimum(replicates.min(axis=0), estimate),
                np.maximum(replicates.max(axis=0), estimate),
            )
            errors[value.name], biases[value.name] = (high - low) / 2, estimate - (high + low) / 2
        if (gap := value.name + GAP) in full and len(without) > 1:
            fitted = cross_fit(full[gap], [one[gap] for one in without], replicates)
            biases[value.name] = np.where(errors[value.name] > 0, (estimate - fitted) / 2, 0.0)
    return errors, biases
