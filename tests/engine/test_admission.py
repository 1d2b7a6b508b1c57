"""What is refused of a request before a worker starts: how large its statistics are at least."""

import pytest

import poskernel_core as pk
from poskernel_core.common.errors import BadRequest, ComputeFailed
from poskernel_core.common.specs import CorpusSpec, Execution
from poskernel_core.data import corpora
from poskernel_core.engine import admission
from poskernel_core.engine.engine import describe_run
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.passes import runner
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.store import Store
from tests.support import builders

CONTEXT = 41


def held(arrays):
    """The bytes of all arrays of a pass."""
    return sum(
        array.nbytes
        for layer in range(arrays.header.n_layers)
        for array in arrays.layer(layer).values()
    )


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

    least = admission.least_bytes(catalog.locate(path).geometry, run, read)

    assert read == found.header.windows
    assert 0.7 * held(found) < least <= held(found)


@pytest.mark.parametrize(
    ("corpus", "asked", "least"),
    [
        ("openwebtext", 64, 60),
        ("wikitext", 7, 7),
        ("repeated", 23, 20),
        ("random", 101, 100),
        ("sample", 13, 10),
        ("sample", 10**6, None),
        (__file__, 64, 1),
    ],
)
def test_the_fewest_windows(corpus, asked, least):
    """Equal groups of what is asked for, or of what a bundled text holds at least."""
    run = describe_run("demo-attn-2l", context=31, windows=asked)
    run = run.model_copy(update={"corpus": CorpusSpec(name=corpus)})

    found = admission._least_windows(run)

    assert found == (found if least is None else least)
    assert least is not None or (0 == found % 10 and 10 < found < asked)


def test_a_bundled_text_holds_what_is_said():
    """The least number of windows is there."""
    run = describe_run("demo-attn-2l", context=31, windows=10**6)
    found = corpora.token_windows(
        run.corpus,
        load_tokenizer(catalog.locate("demo-attn-2l")),
        context=31,
        windows=admission._least_windows(run),
        start_token=True,
        exactly=True,
    )

    assert admission._least_windows(run) == len(found.tokens)


def test_room_for_sums_and_statistics(model_dirs):
    """A store that holds no more than the statistics is too small for the sums that they are of."""
    run = describe_run(str(model_dirs["llama"]), context=CONTEXT, windows=20)
    run = run.model_copy(update={"corpus": CorpusSpec(name="repeated")})
    geometry = catalog.locate(str(model_dirs["llama"])).geometry
    least = admission.least_bytes(geometry, run, 20)

    with pytest.raises(BadRequest, match=r"MB or more while they are gathered, the store holds"):
        admission._check_room(least, run)
    admission._check_room(3 * least, run)


def test_a_store_that_is_too_small_for_the_sums(tmp_path, model_dirs):
    """One sentence, and no word of shards."""
    store = Store(tmp_path, 0.0001)
    corpus = CorpusSpec(name="text", text="She sells sea shells by the sea shore.")
    run = describe_run(str(model_dirs["llama"]), corpus=corpus, context=CONTEXT)

    with pytest.raises(ComputeFailed, match="The store is too small for the sums") as caught:
        runner.gather_run(WorkerContext(store), run, Execution(), {}, lambda *_: None)
    assert "shard" not in str(caught.value)
