"""A run cut into shards, computed anywhere, and put together again."""

import errno
import re
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from poskernel_core.cli import main as cli
from poskernel_core.common import shards
from poskernel_core.common.errors import NoSpace
from poskernel_core.common.header import PassHeader
from poskernel_core.common.shards import WHOLE, Shard, ShardTask
from poskernel_core.common.specs import ALL_GATHERED, CorpusSpec, Execution
from poskernel_core.data import corpora
from poskernel_core.engine.distributed.shards import is_there
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.provenance import software
from poskernel_core.forward.loading import load
from poskernel_core.models.catalog import locate
from poskernel_core.models.geometry import Geometry
from poskernel_core.passes import merging, runner, streaming
from poskernel_core.passes.merging import merge_shards
from poskernel_core.passes.prepare import prepare
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.statistics import STATISTICS, Sizes
from poskernel_core.statistics.keys import MeanKeys
from poskernel_core.storage.archive import open_sources
from poskernel_core.storage.shards import Partial, checksum
from poskernel_core.storage.statistics import missing_statistics
from poskernel_core.storage.store import Store
from tests.support import builders, silent
from tests.support.near_worker import command_line_here
from tests.support.stages import held, layers_of, same_bits

pytestmark = pytest.mark.usefixtures("near_worker")

CONTEXT, TEXTS, OF = 13, 71, 4
READ, SEEN = 70, 64


PLAN = Sizes(Geometry(1, 2, 2, 11, 5, 17, 19, "gpt2", "learned"), 3, 13, (2,), 5, False)
COUNTS = st.integers(1, 997), st.integers(1, 31), st.integers(1, 41)


@given(*COUNTS, st.booleans())
def test_every_window_is_in_one_block(windows, of, context, whole):
    """Group after group and in order, whole steps; no two shards differ by more than one step."""
    windows -= windows % min(10, windows) if whole else 0
    size, shares, read = max(1, 64 // context), [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "TOKENS_PER_STEP", 64)
        parts = [Shard(number=number, of=of).blocks(windows, context) for number in range(of)]
    for blocks in parts:
        read += [(block.group, window) for block in blocks for window in block.windows]
        shares.append(sum(-(-len(block.windows) // size) for block in blocks))
        assert len({block.group for block in blocks}) == len(blocks)
        for block in blocks:
            group = [w for w in range(windows) if w % min(10, windows) == block.group]
            assert block.whole == ([*block.windows] == group)
            assert 0 == group.index(block.windows[0]) % size
            assert block.windows[-1] == group[-1] or 0 == len(block.windows) % size

    expected = []
    for group in range(min(10, windows)):
        for window in range(windows):
            if window % min(10, windows) == group:
                expected.append((group, window))
    assert expected == read
    assert max(shares) - min(shares) <= 1
    assert sorted(shares, reverse=True) == shares


def added(statistic, values, order, cuts):
    """The sum of values added in an order, in as many parts as there are cuts."""
    parts = []
    for numbers in np.split(np.asarray(order), cuts):
        one = statistic(PLAN, torch.device("cpu"))
        for number in numbers:
            one.add("key_sum", 0, torch.from_numpy(values[number]))
        parts.append({name: total.numpy() for name, total in one.sums.items()})
    total = parts[0]
    for part in parts[1:]:
        total = streaming.add(total, part)
    return total["key_sum"]


@given(
    hn.arrays(
        np.float32,
        st.tuples(st.integers(1, 13), st.just(2), st.just(3), st.just(5)),
        elements=st.floats(-(2.0**20), 2.0**20, width=32)
        | st.floats(-1, 1, width=32)
        | st.floats(-(2.0**-30), 2.0**-30, width=32),
    ),
    st.data(),
)
def test_adding_does_not_depend_on_its_order(values, data):
    """Of values of very different sizes, in any order and cut anywhere: the same bits."""
    order = data.draw(st.permutations(range(len(values))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=3)))
    expected, found = (
        added(MeanKeys, values, *each) for each in ((range(len(values)), []), (order, cuts))
    )

    assert expected.tobytes() == found.tobytes()
    exact = [[Fraction(float(each)) for each in row] for row in values.reshape(len(values), -1)]
    for place, total in enumerate(expected[0].reshape(-1)):
        off = Fraction(float(total)) - sum(row[place] for row in exact)
        assert abs(off) <= len(values) * Fraction(MeanKeys.grain) / 2


@pytest.mark.parametrize("lost", [None, "group", "shard", "tokens", "layers", "versions", "pass"])
def test_sums_of_another_layout(lost):
    """A manifest that lacks anything is none."""
    header = {
        "n_layers": 2, "n_heads": 8, "n_kv_heads": 4, "n_ctx": 64, "n_vocab": 100, "d_head": 3,
        "architecture": "mistral", "scheme": "rotary", "d_model": 24, "context": 7, "windows": 1,
        "positions": (3, 6), "samples": 1, "start_token": False, "device": "cpu",
        "dtype": "float32", "scales": (1.0, 1.0), "sliding_windows": (None, None),
    }  # fmt: skip
    partial = Partial(
        run=describe_run("demo-attn-2l"), statistic="keys", shard=WHOLE, group=3,
        header=PassHeader(**header), tokens="t", versions={"torch": "1"}, layers=("a", "b"),
    )  # fmt: skip

    found = Partial.read({name: x for name, x in partial.as_json().items() if name != lost})

    assert found == (partial if lost is None else None)


@given(
    hn.arrays(np.float32, st.sampled_from([(), (3,), (2, 5)]), elements=st.floats(-9, 9, width=32))
)
def test_checksums_tell_arrays_apart(array):
    """By numbers, type, shape and name; not by where they lie in memory."""
    found = checksum({"a": array})

    assert found == checksum({"a": np.array(array, order="F")})
    assert found != checksum({"b": array})
    assert found != checksum({"a": array.astype(np.float64)})
    assert found != checksum({"a": array[None]})
    assert found != checksum({"a": np.asarray(array + 1)})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the tokens of all windows."""
    folder = tmp_path_factory.mktemp("shards")
    np.save(folder / "ids.npy", builders.random_ids(TEXTS, CONTEXT, seed=7).numpy())
    return folder


@pytest.fixture(scope="module")
def options(place, model_dirs):
    """The arguments that describe the run; attention is formed on the first windows alone."""
    return (
        str(model_dirs["llama"]), "--corpus", str(place / "ids.npy"),
        "--context", str(CONTEXT), "--windows", str(TEXTS), "--pattern-windows", str(SEEN),
        "--device", "cpu",
    )  # fmt: skip


@pytest.fixture(scope="module")
def described(place, model_dirs):
    """The same run as Python describes it."""
    corpus = corpora.resolve(CorpusSpec(name=str(place / "ids.npy")))
    run = describe_run(
        str(model_dirs["llama"]), corpus=corpus, context=CONTEXT, windows=TEXTS,
        pattern_windows=SEEN, gather=ALL_GATHERED,
    )  # fmt: skip
    return run.model_copy(update={"corpus": corpus})


@pytest.fixture
def command(capsys, monkeypatch):
    """Run a command on a store; returns exit code and what it says."""

    def one(store, *arguments):
        monkeypatch.setenv("POSKERNEL_CACHE", str(store))
        code = cli.main([str(each) for each in arguments])
        return code, capsys.readouterr().err

    return one


@pytest.fixture(scope="module")
def stores(place, options):
    """Four stores with a shard each, computed by the command line, and their files."""
    (place / "files").mkdir()
    for number in range(OF):
        shard = ("--shard", f"{number}/{OF}", "--shard-files", str(place / "files"))
        command_line_here(place / f"store{number}", "precompute", *options, *shard)
    return [place / f"store{number}" for number in range(OF)]


def assert_whole(found, run, located):
    """The layers are those of one pass in memory, bit for bit."""
    windows, plan = prepare(run, Execution(), located, None)
    whole = runner.gather(load(located, "cpu"), windows, plan, run)
    same_bits(layers_of(whole), found)


@pytest.fixture
def small_steps(monkeypatch):
    """Two windows are read at a time, four times in each group of seven."""
    monkeypatch.setattr(shards, "TOKENS_PER_STEP", 2 * CONTEXT)
    monkeypatch.setitem(streaming.TOKENS_PER_BATCH, "cpu", 2 * CONTEXT)


@pytest.mark.usefixtures("small_steps", "unchecked")
@pytest.mark.parametrize(("of", "gather"), [(3, tuple(STATISTICS)), (53, ("keys",))])
def test_as_many_shards_as_one_likes(tmp_path, described, model_dirs, of, gather):
    """Cut anywhere, also within groups, statistics are those of one pass, bit for bit."""
    located = locate(str(model_dirs["llama"]))
    run = described.model_copy(update={"gather": gather, "queries_per_position": 29})
    shared, cut = WorkerContext(Store(tmp_path)), 0
    for number in reversed(range(of)):
        shard = Shard(number=number, of=of)
        wrote = runner.gather_shard(shared, run, shard, Execution(), {}, silent)
        assert wrote == bool(shard.blocks(READ, CONTEXT))
        cut += sum(not block.whole for block in shard.blocks(READ, CONTEXT))
    merge_shards(shared.store, {}, run, of, silent)

    header, found = held(shared.store, run)
    assert_whole(found, run, located)
    assert cut
    assert (READ, 20, 10) == (header.windows, header.samples, header.groups)


@pytest.mark.usefixtures("small_steps", "unchecked")
def test_a_merge_that_fails(tmp_path, described, monkeypatch):
    """All sums stay, also those of statistics that were written: no shard is computed again."""
    run = described.model_copy(update={"gather": ("keys", "queries")})
    shared, write = WorkerContext(Store(tmp_path)), merging.write_statistic
    tasks = [
        ShardTask(run=run, shard=Shard(number=number, of=3), execution=Execution())
        for number in range(3)
    ]
    for task in tasks:
        runner.gather_shard(shared, run, task.shard, Execution(), software(), silent)

    def failing(store, run, statistic, *given):
        if statistic == "queries":
            raise NoSpace("No space is left.")
        write(store, run, statistic, *given)

    with monkeypatch.context() as patch:
        patch.setattr(merging, "write_statistic", failing)
        with pytest.raises(NoSpace):
            merge_shards(shared.store, {}, run, 3, silent)
    assert ("queries",) == missing_statistics(shared.store, run)
    assert all(is_there(shared.store, task) for task in tasks)
    parts = [part for _, header in shared.store.headers() if (part := Partial.read(header))]
    merge_shards(shared.store, {}, run, 3, silent)
    total = sum(part.header.seconds for part in parts if part.statistic == "keys")
    assert total == pytest.approx(held(shared.store, run)[0].seconds, abs=2e-3)
    assert not any(is_there(shared.store, task) for task in tasks)


@pytest.mark.usefixtures("unchecked")
def test_merged(tmp_path, place, stores, options, described, command, model_dirs):
    """Bit for bit as one pass in memory; the results follow, and no work is done twice."""
    shuffled = [stores[2], stores[0], place / "files", stores[3], stores[1]]

    code, said = command(tmp_path, "merge", *options, "--shards", OF, *shuffled)
    assert (0, "4 shards: merged") == (code, said.splitlines()[0])
    assert "etc: computed" in said
    header, found = held(Store(tmp_path), described)
    assert (OF, READ) == (header.shards, header.windows)
    assert_whole(found, described, locate(str(model_dirs["llama"])))

    code, said = command(tmp_path, "precompute", *options, "--shards", 2)
    assert (0, "the statistics were in the store already: nothing was merged") == (
        code, said.splitlines()[0],
    )  # fmt: skip
    assert "etc: cached" in said


@pytest.mark.usefixtures("unchecked")
def test_files_alone(tmp_path, place, stores, described, command, model_dirs):
    """A folder of exported files gives the whole, and so do files that were imported."""
    folder, imported = Store(tmp_path / "folder"), Store(tmp_path / "imported")
    with open_sources([place / "files"]) as sources:
        assert merge_shards(folder, sources, described, OF, silent)
    for file in sorted((place / "files").iterdir(), reverse=True):
        assert 0 == command(tmp_path / "imported", "import", file)[0]
    assert merge_shards(imported, {}, described, OF, silent)

    assert_whole(held(folder, described)[1], described, locate(str(model_dirs["llama"])))
    same_bits(held(folder, described)[1], held(imported, described)[1])
    left = [found for _, header in imported.headers() if (found := Partial.read(header))]
    assert not [each for each in left if each.statistic in described.gather]


def changed(tmp_path, store, change):
    """A copy of a store whose manifests of shards a function has changed."""
    new = Store(shutil.copytree(store, tmp_path / "changed"))
    for key, header in [*new.headers()]:
        if Partial.read(header) is not None:
            change(header)
            new.put(key, header, {})
    return tmp_path / "changed"


CHANGES = {
    "torch": (lambda h: h["versions"].update(torch="1.0"), "the second with 1.0"),
    "tokens": (lambda h: h.update(tokens="0" * 64), "different tokens"),
    "scales": (lambda h: h["pass"].update(scales=[1.0, 1.0, 1.0]), "scales is"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_shards_that_do_not_belong_together(tmp_path, stores, options, refused, case):
    """One sentence says which two, and in what they differ."""
    change, words = CHANGES[case]
    others = [*stores[:2], changed(tmp_path, stores[2], change), stores[3]]
    said = refused("merge", *options, "--shards", OF, *others)
    assert "cannot be added" in said
    assert words in said


def test_a_shard_twice(tmp_path, stores, options, refused):
    """With equal sums it is one shard; with others it is named."""

    def change(header):
        header["layers"] = ["0" * 64, *header["layers"][1:]]

    twice = [*stores, changed(tmp_path, stores[1], change)]
    merge = "merge", *options, "--shards", OF
    assert "Shard 1/4 is there twice with different sums" in refused(*merge, *twice)
    said = refused(*merge, stores[0], twice[-1], *stores[2:])
    assert re.search(r"Layer 0 of '\w+' in shard 1/4 is lost or damaged", said)


def test_lost_shards(tmp_path, place, stores, options, refused):
    """They are named; where there is one of another run instead, so is the difference.

    A folder without files, a file that is none of ours, and no file; no word of an import.
    """
    merge = "merge", *options, "--shards", OF
    said = refused(*merge, stores[2], stores[0])
    assert "Of 4 shards numbered from 0, these are lost: 1, 3 (" in said
    assert "(precompute, shard 1/4)" in said

    ids = tmp_path / "ids.npy"
    np.save(ids, np.load(place / "ids.npy")[::-1])
    ours = (*options[:2], str(ids), *options[3:])
    said = refused("merge", *ours, "--shards", OF, *stores)
    assert "corpus fingerprint is" in said

    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("no zip")
    for name, words in (
        ("empty", "found neither"),
        ("text.zip", "not a file that 'export'"),
        ("none.zip", "There is no file"),
    ):
        said = refused(*merge, tmp_path / name)
        assert words in said
        assert "import" not in said


MISUSES = {
    "number": (("--shard", "4/4"), "expected a shard R/N such as 0/8 (R from 0 to N - 1)"),
    "no shard": (("--shard", "1"), "expected a shard R/N"),
    "two ways": (("--shard", "0/2", "--devices", "cpu"), "Give one of --shard and --devices"),
    "two counts": (("--shard", "0/2", "--shards", "2"), "not both"),
    "no folder": (("--shard", "0/2", "--shard-files", "none"), "found none at 'none': make one"),
    "a file": (("--shard", "0/2", "--shard-files", __file__), "shards, found a file at '"),
    "files of one": (("--shards", "2", "--shard-files", "."), "--shard-files is for"),
    "device": (("--devices", "cpu,tpu"), "device such as"),
    "revisions": (("--shards", "2", "--revisions", "all"), "--revisions is not cut"),
}


@pytest.mark.parametrize("case", MISUSES)
def test_misuse(options, refused, case):
    """One sentence for each combination that makes no sense."""
    given, words = MISUSES[case]
    assert words in refused("precompute", *options, *given)


@pytest.mark.parametrize("looked", ["is_dir", "is_file"])
def test_a_folder_that_may_not_be_read(tmp_path, options, refused, monkeypatch, looked):
    """One sentence, for a source of shards and for a folder that they are written to."""
    locked = tmp_path / "locked"
    locked.mkdir()
    look = getattr(Path, looked)

    def denied(path):
        if locked in (path, *path.parents):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(Path, looked, denied)
    asked = [("merge", *options, "--shards", 2, locked)]
    if looked == "is_dir":
        asked += [("precompute", *options, "--shard", "0/2", "--shard-files", locked / "below")]
    for each in asked:
        said = refused(*each)
        assert f"Cannot look for '{locked}" in said
        assert "Permission denied; ask for" in said
