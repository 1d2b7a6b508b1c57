"""What is refused before a worker starts: what a visitor asks for at once, what has no room."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.api import default_requests
from poskernel_core.common.errors import BadRequest, ComputeFailed, TooLarge
from poskernel_core.common.settings import PUBLIC, settings, variable
from poskernel_core.common.specs import CorpusSpec, Execution, Request, default_positions
from poskernel_core.data import corpora
from poskernel_core.engine import admission
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.plan import make_plan, to_compute
from poskernel_core.models import catalog
from poskernel_core.models.geometry import (
    KEPT,
    ROOM,
    SHORTEST,
    Geometry,
    bytes_gathered,
    bytes_kept,
    bytes_saved,
)
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.passes import runner
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.store import Store
from tests.support import builders

CONTEXT, MODEL = 41, "demo-gpt2"
OWN_MACHINE = "compute (it|them) on your own machine"


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize(
    ("windows", "read", "samples"), [(1, 1, 3), (7, 7, 3), (23, 20, 11), (70, 70, 64)]
)
def test_the_least_size(model_dirs, name, windows, read, samples):
    """It is less than what is stored, by no more than headers and small arrays."""
    path = str(model_dirs[name])
    ids = builders.random_ids(windows, CONTEXT).numpy()
    found = pk.run_pass(pk.load(path, device="cpu"), ids, queries_per_position=samples)
    run = describe_run(path, context=CONTEXT, windows=windows)
    run = run.model_copy(update={"queries_per_position": samples})
    layers = (found.layer(layer).values() for layer in range(found.header.n_layers))
    held = sum(array.nbytes for arrays in layers for array in arrays)

    numbers = admission._numbers(catalog.locate(path).geometry, run, read)
    assert read == found.header.windows
    assert 0.7 * held < bytes_kept(numbers, min(10, read)) <= held


def test_sizes_by_hand():
    """Sums take 600 bytes. Means of the stream take 28, of keys 72, queries 200, in this order."""
    numbers = {"queries": 5, "residuals": 7, "keys": 3}
    assert (628, 300, 100) == (
        bytes_gathered(numbers, 10), bytes_kept(numbers, 10), bytes_saved(numbers),
    )  # fmt: skip
    assert (60 + 28, 60) == (bytes_gathered(numbers, 1), bytes_kept(numbers, 1))


@pytest.mark.parametrize(
    ("corpus", "asked", "least"),
    [("openwebtext", 64, 60), ("wikitext", 7, 7), ("repeated", 23, 20), ("random", 101, 100),
     ("sample", 13, 10), (__file__, 64, 1)],
)  # fmt: skip
def test_the_fewest_windows(corpus, asked, least):
    """Equal groups of what is asked for."""
    run = describe_run("demo-attn-2l", context=31, windows=asked)
    run = run.model_copy(update={"corpus": CorpusSpec(name=corpus)})
    assert least == admission._least_windows(run)


def test_the_fewest_windows_of_a_bundled_text():
    """What it holds at least; they are there."""
    run = describe_run("demo-attn-2l", context=31, windows=10**6)
    tokenizer, least = load_tokenizer(catalog.locate("demo-attn-2l")), admission._least_windows(run)
    given = {"context": 31, "windows": least, "start_token": True, "exactly": True}
    assert 0 == least % 10 < 10 < least < 10**6
    assert least == len(corpora.token_windows(run.corpus, tokenizer, **given).tokens)


def test_room_for_sums_and_statistics(model_dirs, tmp_path, monkeypatch):
    """A store that holds no more than the statistics is too small for the sums that they are of.

    So is one for a text whose windows nobody knows before it is cut, of which none is read then.
    """
    llama = str(model_dirs["llama"])
    run = describe_run(llama, context=CONTEXT, windows=20)
    geometry = catalog.locate(llama).geometry
    least = bytes_kept(admission._numbers(geometry, run, 20), 10)
    assert least < admission.least_room(run, geometry) < 3 * least

    store = Store(tmp_path / "asked", 0.0001)
    with pytest.raises(
        BadRequest, match=r"MB or more while they are gathered, the store holds 0\.1"
    ):
        Engine(store, "cpu").submit(Request(analysis="etc", run=run))
    many = CorpusSpec(name=str(builders.mini_corpus(tmp_path / "texts")[0]))
    monkeypatch.setattr(runner, "free_memory", lambda: 0)
    # too many sums; those of a typed text; sums that fit, but not beside their statistics
    for text, read, merged in (
        (None, False, False),
        ("She sells sea shells by the sea shore.", True, False),
        ("She sells shells by the sea shore.", True, True),
    ):
        corpus = CorpusSpec(name="text", text=text) if text else many
        run = describe_run(llama, corpus=corpus, context=CONTEXT)
        notes = []

        def report(_done, _total, note, notes=notes):
            notes.append(note)

        store = Store(tmp_path / f"{read} {merged}", 0.0001)
        given = WorkerContext(store), run, Execution(), {}, report
        with pytest.raises(ComputeFailed, match="The store is too small for the sums") as caught:
            runner.gather_run(*given)
        assert "shard" not in str(caught.value)
        assert read == ("Reading windows of text" in notes)
        assert merged == isinstance(caught.value.__cause__, BadRequest)


@pytest.mark.parametrize("name", ["etc", "rotary-spectrum"])
def test_a_model_is_looked_up_once(name, tmp_path, monkeypatch):
    """For its position scheme, and all else; its tokenizer is read once."""
    store, plan = (
        Store(tmp_path),
        make_plan(Request(analysis=name, run=describe_run("demo-rotary"))),
    )
    (todo,), calls, locate = to_compute(store, plan), [], catalog.locate
    admission.check_plan(store, plan, [todo], None)
    monkeypatch.setattr(catalog, "locate", lambda *given: calls.append(given) or locate(*given))
    admission.check_plan(store, plan, [todo], None)
    assert 1 == len(calls)
    store.close()


@pytest.fixture
def engine(fresh_engine, monkeypatch):
    """An engine on an empty store; a worker of its is never started, and no bound is set."""
    for name in ["POSKERNEL_PUBLIC", *map(variable, PUBLIC)]:
        monkeypatch.delenv(name, raising=False)
    fresh_engine._send = lambda *_: None
    return fresh_engine


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


def typed(length):
    """A text of that many characters, of few tokens where it is a corpus."""
    return {"corpus": CorpusSpec(name="text", text="x" * length), "windows": 1, "context": 16}


def samples(number, length):
    return {"params": {"samples": number, "length": length}}


SETS = {"patch-heads": 900, "edges": 7}
"""Pairs of prompts that two questions are asked about."""
LONG = "up to 1,000 characters, got 1,001"
BOUNDS = {
    # the bound, what it allows, what it refuses, words of the sentence
    "windows": ("WINDOWS=500", {"windows": 500}, {"windows": 2000},
                "This server computes up to 500 windows at a time; 2,000 were asked for: choose "
                "fewer, or compute them on your own machine."),
    "tokens": ("TOKENS=3200", {"windows": 50, "context": 64}, {"windows": 51, "context": 64},
               r"up to 3,200 tokens .* needs up to 3,264 \("),
    "samples of random-attention": ("SAMPLES=300", samples(300, 24), samples(301, 24),
                                    "up to 300 samples at a time; 301 were asked for"),
    # drawn anew for every row: 13 tokens have rows at positions 4 to 10
    "samples of induction-recency": ("TOKENS=9099", samples(99, 13), samples(100, 13),
                                     r"needs up to 9,100 \("),
    "a corpus": ("CHARACTERS=1000", typed(1000), typed(1001), LONG),
}  # fmt: skip
TYPED = {
    # wherever a text is typed: question, its field, what else it needs; a list of heads is none
    "own-text": ("text", {}),
    "neuron-trace": ("text", {"query": 9}),
    "denominators": ("own_texts", {"head": "L0H0"}),
    "intervention": ("text", {"head": "L0H0", "change": "ablate"}),
}
for name, (field, more) in TYPED.items():
    allowed, not_allowed = ({"params": more | {field: "x" * n}} for n in (1000, 1001))
    BOUNDS[f"a text of {name}"] = "CHARACTERS=1000", allowed, not_allowed, LONG


@pytest.mark.parametrize("case", BOUNDS)
def test_bounds(engine, monkeypatch, case):
    """What the server allows, what was asked for, what to do; the bound itself is allowed."""
    bound, allowed, not_allowed, words = BOUNDS[case]
    analysis = case.rpartition(" of ")[2] if " of " in case else "etc"
    monkeypatch.setenv("POSKERNEL_MAX_{}".format(*bound.split("=")), bound.partition("=")[2])
    assert re.search(words, refused(engine, asked(analysis, **not_allowed)))
    assert engine.submit(asked(analysis, **allowed), "anna")


def test_tokens_of_what_shares_a_pass_count_once(engine, monkeypatch):
    """And those of a composition's parts together: one pass over 50 windows, one over 50 more."""
    whole = asked("previous-token", windows=50, context=64)
    needed = len({run.model_copy(update={"gather": ()}) for run in make_plan(whole).needs.values()})
    assert 2 == needed
    monkeypatch.setenv("POSKERNEL_MAX_TOKENS", str(2 * 50 * 64 - 1))
    assert "needs up to 6,400 (" in refused(engine, whole)
    monkeypatch.setenv("POSKERNEL_MAX_TOKENS", str(2 * 50 * 64))
    assert engine.submit(whole, "anna")


@pytest.mark.parametrize("order", [1, -1])
def test_the_part_that_needs_most_says_what_to_do(tmp_path, order):
    """Not the last one: of a large set of pairs and a small one, whichever is computed first."""
    made = {name: {"maker": "copying", "count": count} for name, count in SETS.items()}
    whole, *parts = (make_plan(asked(name, params, context=64)) for name, params in made.items())
    quotas = settings().model_copy(update={"max_tokens": 100_000})
    with pytest.raises(TooLarge, match=r"choose up to (\d+) of 900 pairs, or") as error:
        admission.check_plan(Store(tmp_path), whole, [whole, *parts][::order], quotas)
    fit = re.search(r"up to (\d+) of 900", str(error.value))[1]
    fitting = make_plan(asked("patch-heads", {"maker": "copying", "count": int(fit)}, context=64))
    admission.check_plan(Store(tmp_path), fitting, [fitting, *parts][::order], quotas)


def test_samples_are_no_windows(engine, monkeypatch):
    """Sequences of random tokens are bounded as such, and not as windows of text."""
    monkeypatch.setenv("POSKERNEL_MAX_WINDOWS", "2")
    assert engine.submit(asked("random-attention", {"samples": 300, "length": 24}), "anna")


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


def test_what_is_stored_has_no_size(engine, monkeypatch):
    """A host may show what no visitor could ask for."""
    request = asked(windows=2000)
    monkeypatch.setenv("POSKERNEL_MAX_WINDOWS", "1")
    engine.store.put(make_plan(request).key, {}, {})
    refused(engine, asked(windows=1999))
    assert engine.submit(request, "anna")  # damaged or not: it is there, and costs nothing to look


@given(st.lists(st.sets(st.sampled_from(["anna", "ben", ""]), min_size=1), max_size=9))
def test_open_jobs_are_counted_by_person(jobs):
    """Against counting by hand: programs count for nobody."""
    waiting = [{f"{name} {n}": name for name in job} for n, job in enumerate(jobs)]
    own = sum("anna" in job for job in jobs)
    every = sum(bool(job - {""}) for job in jobs)
    for most, most_in_all in ((own, 99), (own + 1, every), (own + 1, every + 1)):
        bounds = settings().model_copy(
            update={"max_jobs": max(1, most), "max_jobs_total": max(1, most_in_all)}
        )
        full = own >= bounds.max_jobs or every >= bounds.max_jobs_total
        try:
            admission.check_open(waiting, "anna", bounds)
        except BadRequest:
            assert full
        else:
            assert not full


@pytest.mark.parametrize(
    ("sizes", "usual"),
    [
        ({}, 1024),
        ({"n_ctx": 101}, 101),
        ({"n_layers": 48, "n_heads": 25, "n_kv_heads": 25, "d_head": 64, "d_model": 1600}, 256),
        ({"n_layers": 80, "n_heads": 64, "n_kv_heads": 64, "d_model": 512}, 256),
        ({"n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "d_head": 128, "d_model": 4096}, 256),
        ({"n_layers": 80, "n_heads": 64, "n_kv_heads": 8, "d_head": 128, "d_model": 8192}, 64),
        ({"n_layers": 80, "n_heads": 64, "n_kv_heads": 64, "d_head": 128, "d_model": 8192}, 64),
    ],
)
def test_the_usual_run_of_any_model_has_room(sizes, usual):
    """Its context is the longest of its halvings that leaves room in a store of the usual size."""
    one = {"n_layers": 2, "n_heads": 3, "n_kv_heads": 3, "d_model": 24, "d_head": 8}
    more = {"n_ctx": 4096, "n_vocab": 11, "architecture": "gpt2", "scheme": "learned"}
    geometry = Geometry(**{**one, **more, **sizes})
    assert usual == geometry.usual_context
    run = describe_run("demo-attn-2l", windows=500)

    def sizes_at(context):
        positions = default_positions(context, step=geometry.usual_step(context))
        asked = {"context": context, "positions": positions}
        asked = run.model_copy(update=asked | {"corpus": CorpusSpec(name="random")})
        kept = bytes_kept(admission._numbers(geometry, asked, 500), 10)
        return admission.least_room(asked, geometry), kept

    gathered, kept = sizes_at(usual)
    assert gathered < 8 * 2**30
    assert (kept <= KEPT and gathered <= ROOM) or usual == SHORTEST
    gathered, kept = sizes_at(2 * usual)
    assert (kept <= KEPT and gathered <= ROOM) == (usual == min(1024, geometry.n_ctx))


@pytest.mark.parametrize(
    ("sizes", "context", "step"),
    [
        ((42, 16, 8, 3584, 256), 256, 2),
        ((48, 40, 8, 5120, 128), 256, 4),
        ((64, 40, 8, 5120, 128), 128, 2),
        ((80, 64, 8, 8192, 128), 64, 4),
        ((80, 64, 8, 64, 128), 64, 3),
    ],
)
def test_fewer_positions_of_the_widest_models(sizes, context, step):
    """Up to 256 tokens, every second to fourth, up to the last; the fewest if none has room."""
    wide = Geometry(*sizes, 8192, 11, "llama", "rotary")
    assert (context, step) == (wide.usual_context, wide.usual_step(context))
    for longer in (128, 256, 512):
        if longer > context:  # no room
            assert (4 if longer < 512 else 1) == wide.usual_step(longer)
    thinned = default_positions(context, step=step)
    assert default_positions(context)[-1::-step][::-1] == thinned
    assert context - 1 == thinned[-1]
    assert {*thinned, 10} == {*default_positions(context, 10, step=step)}


def test_fewer_positions_of_a_description(monkeypatch):
    """Where none are named; what ignores them shares the pass that records as few."""
    monkeypatch.setattr("poskernel_core.models.geometry.KEPT", 3e6)

    def recorded(model="demo-attn-2l", **asked):
        return describe_run(model, **asked).positions

    assert (*range(7, 64, 8),) == recorded(context=64)
    assert (7, 8, *range(15, 64, 8)) == recorded(context=64, query=8)
    assert (3, 9) == recorded(context=64, positions=(3, 9))
    assert default_positions(300) == recorded("demo-gpt2", context=300)

    every = default_requests("demo-attn-2l", experiments=False, context=64)
    passes = [run for each in every for run in make_plan(each).needs.values()]
    with_query = describe_run("demo-attn-2l", context=64, query=8)
    passes += make_plan(Request(analysis="profile", run=with_query)).needs.values()
    assert {(*range(7, 64, 8),)} == {each.positions for each in passes if each.windows == 500}
