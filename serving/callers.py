"""The programs that ask: who they are, whether they still wait, and what is theirs.

A job belongs to clients, as in the pages. A program's client is what it calls itself in a header,
which is no secret, of one person; the person counts for turns, quotas, and what others do not see.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from secrets import token_urlsafe
from threading import Lock

from cachetools import LRUCache, TTLCache
from starlette.requests import HTTPConnection

from pages.shared.selection.session import ELSEWHERE, behind
from poskernel_core.client import CLIENT
from poskernel_core.engine.job import Job
from poskernel_core.engine.plan import Plan
from serving.clients import host_of, is_local
from serving.problems import Problem

NAMED = re.compile(r"[\w-]{1,64}", re.ASCII)
PROGRAM, DETACHED = "program\n", "detached\n"
"""How the engine's names of programs begin, and of those whose jobs go on without them."""

PRESENT_SECONDS = 60.0
MAX_WAITING, MAX_WAITING_IN_ALL = 8, 64
MAX_PERSONS, MAX_TICKETS = 4096, 256
RETRY_AFTER = 5


@dataclass(frozen=True)
class Caller:
    """Who sent a request: the person, the client by its own word, whether it is on this machine."""

    person: str
    client: str
    local: bool

    def name(self, *, detached: bool = False) -> str:
        """Return what the engine calls it."""
        return f"{DETACHED if detached else PROGRAM}{self.person}\n{self.client}"


@dataclass(frozen=True)
class Ticket:
    """A job as one client asked for it.

    Attributes:
        key: its name in addresses.
        client: the engine's name of the client.
        plan: what was asked.
        chosen: the part of the answer that was asked for, by ``Result.select``.
        job: the job.
    """

    key: str
    client: str
    plan: Plan
    chosen: dict[str, int]
    job: Job


@dataclass
class Holdings:
    """What is one person's: the tickets, and the keys of answers about typed texts."""

    tickets: LRUCache[str, Ticket] = field(default_factory=lambda: LRUCache(MAX_TICKETS))
    texts: LRUCache[str, bool] = field(default_factory=lambda: LRUCache(MAX_TICKETS))


class Callers:
    """Knows the programs that ask.

    Args:
        now: a monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._seen: TTLCache[str, bool] = TTLCache(MAX_PERSONS, PRESENT_SECONDS, now)
        self._seeing = Lock()  # the engine asks from another thread
        self._waiting: Counter[str] = Counter()  # requests that wait or listen, by the name
        self._holdings: LRUCache[str, Holdings] = LRUCache(MAX_PERSONS)
        for begin in (PROGRAM, DETACHED):
            ELSEWHERE[begin] = self.present, self.person

    def of(self, connection: HTTPConnection) -> Caller:
        """Return who sent a request, and note that it has asked just now."""
        address, headers = host_of(connection.scope), connection.headers
        client = headers.get(CLIENT, address or "unknown")
        if not NAMED.fullmatch(client) and client != address:
            raise Problem(400, f"Expected up to 64 letters and digits as {CLIENT}, got others.")
        person = behind(f"program {client}", address, headers.items())
        caller = Caller(person, client, is_local(connection.scope))
        with self._seeing:
            self._seen[caller.name()] = True
        return caller

    def present(self, name: str) -> bool:
        """Return whether a client waits, listens or asked lately, or detached its job."""
        with self._seeing:
            return name.startswith(DETACHED) or self._waiting[name] > 0 or name in self._seen

    def person(self, name: str) -> str:
        """Return the person behind a client."""
        return name.split("\n")[1]

    @contextmanager
    def waiting(self, caller: Caller) -> Iterator[None]:
        """Count a request while it waits or listens.

        Raises:
            Problem: too many of this person, or of all, do.
        """
        counts, name = self._waiting, caller.name()
        own = sum(
            number for client, number in counts.items() if self.person(client) == caller.person
        )
        if own >= MAX_WAITING or counts.total() >= MAX_WAITING_IN_ALL:
            raise Problem(
                429,
                f"Up to {MAX_WAITING} requests of one person wait here at a time, and up to "
                f"{MAX_WAITING_IN_ALL} in all: ask again in {RETRY_AFTER} seconds.",
                headers={"Retry-After": str(RETRY_AFTER)},
                error="Busy",
            )
        with self._seeing:
            counts[name] += 1
        try:
            yield
        finally:
            with self._seeing:
                self._seen[name] = True
                counts[name] -= 1
                if not counts[name]:
                    del counts[name]

    def holdings(self, caller: Caller) -> Holdings:
        """Return what is a caller's person's."""
        holdings: Holdings = self._holdings.setdefault(caller.person, Holdings())
        return holdings

    def ticket(self, caller: Caller, key: str) -> Ticket:
        """Return a job of a caller's person.

        Raises:
            Problem: the person has none of that name.
        """
        ticket: Ticket | None = self.holdings(caller).tickets.get(key)
        if ticket is None:
            raise Problem(404, "You have no such job here: ask for the answer again.")
        return ticket

    def add(
        self, caller: Caller, name: str, plan: Plan, chosen: dict[str, int], job: Job
    ) -> Ticket:
        """Return the ticket of a job that a caller asked for by a name of the engine's."""
        tickets = self.holdings(caller).tickets
        for ticket in tickets.values():
            if (ticket.job, ticket.client, ticket.chosen) == (job, name, chosen):
                return ticket
        made = Ticket(token_urlsafe(12), name, plan, chosen, job)
        tickets[made.key] = made
        return made
