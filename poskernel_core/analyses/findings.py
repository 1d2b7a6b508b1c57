"""The finding of a result: what it shows, in one sentence, by tested rules.

Each topic has ``findings.py`` with ``finding(result)``. Pages, ``show --json`` and files share it.
"""

from functools import cache
from importlib.util import find_spec

from poskernel_core.analyses import ANALYSES
from poskernel_core.common.result import Result


def finding_of(result: Result) -> str:
    """Return what a result, or a part of it, shows; empty if it supports no claim."""
    question = ANALYSES.get(result.analysis)
    if question is None or not _speaks(type(question).__module__.rpartition(".")[0]):
        return ""
    sentence: str = question.beside("findings", "finding")(result)
    return sentence


@cache
def _speaks(topic: str) -> bool:
    return find_spec(f"{topic}.findings") is not None
