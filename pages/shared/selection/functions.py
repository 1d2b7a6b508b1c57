"""What heads are known to do: from the posts, from training, or from stored results of the run."""

import threading
from contextlib import suppress
from typing import Final

import numpy as np
from cachetools import LRUCache

from pages.shared.jobs import results
from poskernel_core.analyses import find
from poskernel_core.analyses.claims import ATTENTION
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.heads import head_name
from poskernel_core.common.specs import RunSpec
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.known import MEASURED, known_heads

ASKED: Final = {
    "previous-token": ("previous_mass", MEASURED["previous_token"]),
    "induction-scores": ("induction", MEASURED["induction"]),
}
"""Questions whose answers show a function: the value, and the words before it."""

_FOUND: LRUCache[str, dict[str, str]] = LRUCache(64)
_LOCK = threading.Lock()


def functions_of(run: RunSpec, geometry: Geometry) -> dict[str, str]:
    """Return the functions of a model's heads by head name, the strongest first."""
    known = known_heads(run.model.name)
    for name, (value, words) in ({} if known else ASKED).items():
        with suppress(PosKernelError):
            known = known | _shown_by(run, geometry, name, value, words)
    return known


def _shown_by(
    run: RunSpec, geometry: Geometry, name: str, value: str, words: str
) -> dict[str, str]:
    question = find(name)
    asked = results.plan(question, run, question.params(**question.default_params(run, geometry)))
    if asked.key not in _FOUND and (found := results.stored(asked)):
        shares = found.values[value]
        order = np.argsort(-np.nan_to_num(shares), axis=None)[: int((shares >= ATTENTION).sum())]
        places = zip(*np.unravel_index(order, shares.shape), strict=True)
        with _LOCK:
            _FOUND[asked.key] = {
                head_name(int(i), int(j)): f"{words} {shares[i, j]:.2f}" for i, j in places
            }
    with _LOCK:
        return _FOUND.get(asked.key, {})
