"""A run cut into shards, so that several machines share it: which windows each of them reads."""

from __future__ import annotations

import re

from pydantic import Field, model_validator

from poskernel_core.common.errors import InvalidField
from poskernel_core.common.specs import Execution, RunSpec, Spec

__all__ = ["MOST_SHARDS", "Shard", "ShardTask"]

MOST_SHARDS = 10_000


class Shard(Spec):
    """One of the parts that a run is cut into, numbered from 0 as the tasks of a job array are."""

    called = "shard"

    number: int = Field(ge=0)
    of: int = Field(ge=1, le=MOST_SHARDS)

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Shard:
        if self.number >= self.of:
            raise InvalidField(f"Shards are numbered 0 to {self.of - 1}, not {self.number}.")
        return self

    @classmethod
    def read(cls, text: str) -> Shard:
        """Return the shard that is written ``2/8``.

        Raises:
            ValueError: no such shard.
        """
        found = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
        if found is None:
            raise ValueError(text)
        try:
            return cls(number=int(found[1]), of=int(found[2]))
        except InvalidField as error:
            raise ValueError(text) from error

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def rows(self, windows: int) -> range:
        """Return its windows: consecutive, and as many as the others have, or one more.

        Where there are fewer windows than shards, the last shards have none.
        """
        each, more = divmod(windows, self.of)
        first = self.number * each + min(self.number, more)
        return range(first, first + each + (self.number < more))


class ShardTask(Spec):
    """What is sent to whoever computes a shard, as JSON: nothing else crosses to other machines.

    Attributes:
        run: the pass, with everything that it gathers.
        shard: which part of it.
        execution: where and how it is carried out.
        folder: where it is written as a file of its own; None: it stays in the store.
    """

    called = "task"

    run: RunSpec
    shard: Shard
    execution: Execution
    folder: str | None = None
