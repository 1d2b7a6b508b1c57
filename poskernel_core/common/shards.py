"""Shards: split the windows of a run between several machines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import Field, model_validator

from poskernel_core.common.errors import InvalidField
from poskernel_core.common.groups import groups_of
from poskernel_core.common.specs import Execution, RunSpec, Spec

MAX_SHARDS = 10_000
TOKENS_PER_STEP = 2048
"""Tokens per CPU batch; shards never split such a batch, so that sums are rounded alike."""


@dataclass(frozen=True)
class Block:
    """The windows of one group that a shard reads.

    Attributes:
        group: the group's number.
        windows: the windows' numbers, ascending.
        whole: whether these windows are the whole group.
    """

    group: int
    windows: range
    whole: bool


class Shard(Spec):
    """One part of a run, numbered from 0 like the tasks of a job array."""

    called = "shard"

    number: int = Field(ge=0)
    of: int = Field(ge=1, le=MAX_SHARDS)

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Shard:
        if self.number >= self.of:
            raise InvalidField(f"Shards are numbered 0 to {self.of - 1}, not {self.number}.")
        return self

    @classmethod
    def read(cls, text: str) -> Shard:
        """Parse a shard written as ``2/8``.

        Raises:
            ValueError: not a valid shard.
        """
        match = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None:
            raise ValueError(text)
        try:
            return cls(number=int(match[1]), of=int(match[2]))
        except InvalidField as error:
            raise ValueError(text) from error

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def blocks(self, windows: int, context: int) -> list[Block]:
        """Return the blocks of this shard; a block is a run of consecutive windows of one group.

        A run is split between steps of :data:`TOKENS_PER_STEP` tokens; shards differ by at most one
        step. If there are fewer steps than shards, the last shards have none.
        """
        groups, size = groups_of(windows), max(1, TOKENS_PER_STEP // context)
        every = [range(group, windows, groups) for group in range(groups)]
        steps = [
            (group, first) for group in range(groups) for first in range(0, len(every[group]), size)
        ]
        share, more = divmod(len(steps), self.of)
        start = self.number * share + min(self.number, more)
        mine = steps[start : start + share + (self.number < more)]
        blocks = []
        for group in dict.fromkeys(group for group, _ in mine):
            firsts = [first for at, first in mine if at == group]
            read = every[group][firsts[0] : firsts[-1] + size]
            blocks.append(Block(group, read, len(read) == len(every[group])))
        return blocks


WHOLE = Shard(number=0, of=1)
"""The only shard of a run that is not split."""


class ShardTask(Spec):
    """The JSON message that describes a shard to compute; nothing else is sent to other machines.

    Attributes:
        run: the pass, with all statistics to gather.
        shard: the part to compute.
        execution: device and batch size.
        folder: where to write it as a separate file; None to keep it in the store.
    """

    called = "task"

    run: RunSpec
    shard: Shard
    execution: Execution
    folder: str | None = None
