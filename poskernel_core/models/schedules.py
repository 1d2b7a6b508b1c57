"""Steps and revision names of the checkpoints of public training runs.

The steps of pythia and of stanford-crfm's GPT-2 come from transformer_lens' lists. Other runs, such
as OLMo and SmolLM3, have the step in the name of each revision, and the hub lists the revisions.
"""

import ast
from dataclasses import dataclass
from functools import cache

from poskernel_core.common.modules import installed_file
from poskernel_core.models.checkpoints import Checkpoint

LISTS = "tools/model_registry/checkpoints.py"
"""File with the steps, in the transformer_lens package; importing would load torch."""


@dataclass(frozen=True)
class Schedule:
    """The checkpoints of a family of models.

    Attributes:
        steps: name of transformer_lens' list of steps.
        revision: template of a checkpoint's revision, with ``{step}``.
        tokens_per_step: training tokens per step.
    """

    steps: str
    revision: str
    tokens_per_step: int

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Return all checkpoints, sorted by step; empty if transformer_lens is not installed."""
        return tuple(
            Checkpoint(self.revision.format(step=step), step, step * self.tokens_per_step)
            for step in sorted(set(_lists().get(self.steps, ())))
        )


SCHEDULES = {
    "pythia": Schedule("PYTHIA_CHECKPOINTS", "step{step}", 2_097_152),
    "pythia-v0": Schedule("PYTHIA_V0_CHECKPOINTS", "step{step}", 2_097_152),
    "stanford-crfm": Schedule("STANFORD_CRFM_CHECKPOINTS", "checkpoint-{step}", 524_288),
}
"""Schedules by their names in ``precompute --revisions``."""

TOKENS_PER_STEP = {"HuggingFaceTB/SmolLM3": 2_359_296}
"""Tokens per step of runs whose revisions the hub lists, by prefix of the hub name."""


def schedule_for(name: str) -> Schedule | None:
    """Return the schedule of a hub model, or None if its family is unknown."""
    if name.startswith("EleutherAI/pythia"):
        return SCHEDULES["pythia-v0" if "v0" in name else "pythia"]
    return SCHEDULES["stanford-crfm"] if name.startswith("stanford-crfm/") else None


def tokens_per_step(name: str) -> int | None:
    """Return the training tokens per step of a hub model, or None if unknown."""
    return next((n for start, n in TOKENS_PER_STEP.items() if name.startswith(start)), None)


@cache
def _lists() -> dict[str, list[int]]:
    """Return transformer_lens' lists of steps by name, parsed without importing it."""
    lists: dict[str, list[int]] = {}
    file = installed_file("transformer_lens", LISTS)
    for node in ast.parse(file.read_text(encoding="utf-8")).body if file else ():
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            try:
                lists[node.target.id] = _numbers(node.value)
            except ValueError:
                continue
    return lists


def _numbers(node: ast.expr) -> list[int]:
    """Return the value of a list of numbers, a range, or a sum of these."""
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [*_numbers(left), *_numbers(right)]
        case ast.List(elts=elements):
            return [_number(each) for each in elements]
        case ast.Call(func=ast.Name(id="list"), args=[inner], keywords=[]):
            return _numbers(inner)
        case ast.Call(func=ast.Name(id="range"), args=ends, keywords=[]):
            return list(range(*(_number(each) for each in ends)))
    raise ValueError(ast.dump(node)[:80])


def _number(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _number(left) + _number(right)
    raise ValueError(ast.dump(node)[:80])
