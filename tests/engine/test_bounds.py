"""What a visitor may ask for at once: each bound in one sentence, before a worker is started."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.errors import BadRequest, TooLarge
from poskernel_core.common.settings import PUBLIC, settings, variable
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.engine.admission import check_open
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.storage.store import Store

MODEL = "demo-gpt2"
OWN_MACHINE = "compute (it|them) on your own machine"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    """The host has set no bound."""
    for name in ["POSKERNEL_PUBLIC", *map(variable, PUBLIC)]:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def engine(tmp_path):
    """An engine on an empty store; a worker of its is never started here."""
    made = Engine(Store(tmp_path))
    made._send = lambda *_: None
    yield made
    made.close()
    made.store.close()


def asked(analysis="etc", params=None, **run):
    """A request about the bundled model."""
    return Request(analysis=analysis, run=describe_run(MODEL, **run), params=params or {})


def refused(engine, request):
    """The sentence that a visitor reads; nothing is queued, and no worker is started."""
    with pytest.raises(TooLarge) as error:
        engine.submit(request, "anna")
    assert engine.running(request) is None
    assert engine.worker_pid is None
    text = str(error.value)
    assert re.search(rf"^This server .*: .*{OWN_MACHINE}\.$", text)
    return text


def test_windows(engine, monkeypatch):
    """What the server allows, what was asked for, what to do; the bound itself is allowed."""
    monkeypatch.setenv("POSKERNEL_MAX_WINDOWS", "500")

    assert (
        "This server computes up to 500 windows at a time; 2,000 were asked for: choose fewer, or "
        "compute them on your own machine."
    ) == refused(engine, asked(windows=2000))
    assert engine.submit(asked(windows=500), "anna")


def test_tokens(engine, monkeypatch):
    """Windows times context of every pass that is missing."""
    monkeypatch.setenv("POSKERNEL_MAX_TOKENS", str(50 * 64))

    assert "up to 3,200 tokens" in refused(engine, asked(windows=51, context=64))
    assert "needs up to 3,264 (" in refused(engine, asked(windows=51, context=64))
    assert engine.submit(asked(windows=50, context=64), "anna")


def test_tokens_of_what_shares_a_pass_count_once(engine, monkeypatch):
    """And those of a composition's parts together: one pass over 50 windows, one over 50 more."""
    whole = asked("previous-token", windows=50, context=64)
    needed = len({run.model_copy(update={"gather": ()}) for run in make_plan(whole).needs.values()})
    assert 2 == needed
    monkeypatch.setenv("POSKERNEL_MAX_TOKENS", str(2 * 50 * 64 - 1))

    assert "needs up to 6,400 (" in refused(engine, whole)
    monkeypatch.setenv("POSKERNEL_MAX_TOKENS", str(2 * 50 * 64))
    assert engine.submit(whole, "anna")


def test_samples(engine, monkeypatch):
    """Sequences of random tokens are bounded as such, and not as windows of text."""
    monkeypatch.setenv("POSKERNEL_MAX_WINDOWS", "2")
    monkeypatch.setenv("POSKERNEL_MAX_SAMPLES", "300")

    text = refused(engine, asked("random-attention", {"samples": 301, "length": 24}))
    assert "up to 300 samples at a time; 301 were asked for" in text
    assert engine.submit(asked("random-attention", {"samples": 300, "length": 24}), "anna")


def test_samples_of_every_row_count(engine, monkeypatch):
    """Recency draws its samples anew for every row: 13 tokens have rows at positions 4 to 10."""
    monkeypatch.setenv("POSKERNEL_MAX_TOKENS", "9099")
    params = {"samples": 100, "length": 13}

    assert "needs up to 9,100 (" in refused(engine, asked("induction-recency", params))


@pytest.mark.parametrize(
    ("analysis", "params"),
    [
        ("own-text", {"text": "x" * 1001}),
        ("neuron-trace", {"text": "x" * 1001, "query": 9}),
        ("denominators", {"own_texts": "x" * 1001, "head": "L0H0"}),
        ("intervention", {"text": "x" * 1001, "head": "L0H0", "change": "ablate"}),
    ],
)
def test_typed_texts(engine, monkeypatch, analysis, params):
    """Wherever a text is typed; a list of heads is none."""
    monkeypatch.setenv("POSKERNEL_MAX_CHARACTERS", "1000")

    assert "up to 1,000 characters, got 1,001" in refused(engine, asked(analysis, params))


def test_a_typed_corpus(engine, monkeypatch):
    """Also where the text is what the run reads."""
    monkeypatch.setenv("POSKERNEL_MAX_CHARACTERS", "1000")

    refused(engine, asked(corpus=CorpusSpec(name="text", text="x" * 1001)))


def test_a_program_of_ones_own_has_no_bound(engine, monkeypatch):
    """The command line and Python ask as the unnamed visitor."""
    monkeypatch.setenv("POSKERNEL_PUBLIC", "1")
    for name in ("WINDOWS", "TOKENS", "SAMPLES", "CHARACTERS", "JOBS", "JOBS_TOTAL"):
        monkeypatch.setenv(f"POSKERNEL_MAX_{name}", "1")

    for seed in range(3):
        assert engine.submit(asked(windows=2000, seed=seed))
    assert engine.submit(asked("random-attention", {"samples": 20_000, "length": 24}))
    assert engine.submit(asked("own-text", {"text": "x" * 1001}))


def test_without_settings_nothing_that_is_offered_is_refused(engine):
    """Every choice of the sidebar, the most samples of a page, the longest text."""
    longest = describe_run(MODEL).context
    for request in (
        asked(windows=2000, context=longest),
        asked("random-attention", {"samples": 20_000, "length": 512}),
        asked("own-text", {"text": "x " * 50_000}),
        asked("over-training", {"measure": "induction score"}).model_copy(
            update={"run": describe_run("demo-training", windows=2000)}
        ),
    ):
        assert engine.submit(request, "anna")


def test_a_public_server_shows_every_page_first(monkeypatch):
    """Its bounds hold the 500 windows of 1,024 tokens that a page begins with, some passes."""
    monkeypatch.setenv("POSKERNEL_PUBLIC", "1")
    quotas = settings()

    assert 500 <= quotas.max_windows
    assert 4 * 500 * 1024 <= quotas.max_tokens
    assert 2000 <= quotas.max_samples
    monkeypatch.setenv("POSKERNEL_MAX_WINDOWS", "7")
    assert 7 == settings().max_windows


def test_what_is_stored_has_no_size(engine, monkeypatch):
    """A host may show what no visitor could ask for."""
    request = asked(windows=2000)
    monkeypatch.setenv("POSKERNEL_MAX_WINDOWS", "1")
    for part in [make_plan(request)]:
        engine.store.put(part.key, {}, {})

    refused(engine, asked(windows=1999))
    assert engine.submit(request, "anna")  # damaged or not: it is there, and costs nothing to look


@given(st.lists(st.sets(st.sampled_from(["anna", "ben", ""]), min_size=1), max_size=9))
def test_open_jobs_are_counted_by_person(jobs):
    """Against counting by hand: programs count for nobody."""
    waiting = [{f"{name} {n}": name for n, name in enumerate(job)} for job in jobs]
    own = sum("anna" in job for job in jobs)
    every = sum(bool(job - {""}) for job in jobs)
    for most, most_in_all in ((own, 99), (own + 1, every), (own + 1, every + 1)):
        bounds = settings().model_copy(
            update={"max_jobs": max(1, most), "max_jobs_total": max(1, most_in_all)}
        )
        full = own >= bounds.max_jobs or every >= bounds.max_jobs_total
        try:
            check_open(waiting, "anna", bounds)
        except BadRequest:
            assert full
        else:
            assert not full
