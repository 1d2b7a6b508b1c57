"""The Python interface in busy hands: what stands for a description, and what is refused."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import poskernel_core as pk
from poskernel_core import api
from poskernel_core.common.errors import PosKernelError
from poskernel_core.data.corpora import Cut
from poskernel_core.engine import engine as engines
from poskernel_core.engine.job import Job
from poskernel_core.engine.plan import make_plan
from poskernel_core.ledger.published import figures_of
from tests.support import ROOT
from tests.support.fake_worker import FakeWorker

CONTEXT = 29
IDS = np.random.default_rng(7).integers(0, 200, (3, CONTEXT))
MODEL = "demo-attn-2l"
DEMO = Path(pk.__file__).parent / "demo"
FILE = ROOT / "requirements.txt"

pytestmark = pytest.mark.usefixtures("unchecked")  # Python hands over anything


@pytest.fixture(scope="module")
def hands(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """What a user holds in a session: a loaded model, a pass, a result, and an empty folder."""
    loaded = pk.load(MODEL, device="cpu")
    gathered = pk.run_pass(loaded, IDS, positions=[5, 28])
    return SimpleNamespace(
        loaded=loaded,
        gathered=gathered,
        little=pk.run_pass(loaded, IDS, gather=("keys",)),
        result=pk.analyse("etc", gathered),
        folder=tmp_path_factory.mktemp("hands"),
    )


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store of the test's own; the engine that the process keeps is closed after it."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    yield
    engines.close_shared()


@pytest.fixture
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is started for nothing that can be refused at once."""

    def start(*_: Any) -> None:
        raise AssertionError("a worker was started for what can be refused at once")

    monkeypatch.setattr(engines, "Child", start)


def run(**given: Any) -> pk.RunSpec:
    return pk.describe_run(**{"model": MODEL, "context": CONTEXT, **given})


ALIKE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # what is written of a run, and the plain way to say it
    "a corpus by name": ({"corpus": "bible"}, {"corpus": pk.CorpusSpec(name="bible")}),
    "a corpus by its fields": (
        {"corpus": {"name": "bible", "item": "Genesis 24"}},
        {"corpus": pk.CorpusSpec(name="bible", item="Genesis 24")},
    ),
    "a corpus by path": ({"corpus": FILE}, {"corpus": pk.CorpusSpec(name=str(FILE))}),
    "a model by path": ({"model": DEMO / MODEL}, {"model": str(DEMO / MODEL)}),
    "a model by its description": ({"model": pk.ModelSpec(name=MODEL)}, {}),
    "a model by its fields": ({"model": {"name": MODEL}}, {}),
    "NumPy's numbers": (
        {"context": np.int64(17), "windows": np.int32(5), "seed": np.uint8(3)},
        {"context": 17, "windows": 5, "seed": 3},
    ),
    "torch's numbers": ({"context": torch.tensor(17)}, {"context": 17}),
    "torch's precision": ({"dtype": torch.bfloat16}, {"dtype": "bfloat16"}),
    "NumPy's truth": ({"start_token": np.False_}, {"start_token": False}),
    "positions in an array": ({"positions": np.array([9, 5, 9])}, {"positions": (5, 9)}),
    "a query beside positions": ({"positions": [5], "query": np.int64(9)}, {"positions": (5, 9)}),
}  # fmt: skip


@pytest.mark.parametrize("case", ALIKE)
def test_what_stands_for_a_description(case: str) -> None:
    written, plain = ALIKE[case]
    assert run(**plain) == run(**written)


def test_what_stands_for_a_setting(tmp_path: Path) -> None:
    written, plain = (
        make_plan(api.build_request("etc", MODEL, params={"skip": skip})[0]).key
        for skip in (np.int64(3), 3)
    )
    assert plain == written
    assert pk.Execution(device="cuda:1") == pk.Execution(device=torch.device("cuda", 1))
    assert pk.Store(tmp_path).directory == pk.Store(str(tmp_path)).directory
    assert pk.Execution(device="cpu") == pk.Engine(execution="cpu").execution


def test_a_pass_by_the_name_of_a_model(hands: SimpleNamespace) -> None:
    named = pk.run_pass(Path(MODEL).name, torch.tensor(IDS), positions=torch.tensor([5, 28]))
    assert hands.gathered.run == named.run
    assert hands.gathered.arrays.keys() == named.arrays.keys()
    for name, array in hands.gathered.arrays.items():
        np.testing.assert_array_equal(array, named.arrays[name])


@pytest.mark.parametrize("device", [None, torch.device("cpu"), "cpu"])
def test_devices(device: Any) -> None:
    assert pk.load(MODEL, device=device).device.type in ("cpu", "cuda", "mps")


def made(kind: str, **fixed: Any) -> Callable[..., Any]:
    """Return what calls or makes a thing of the interface."""
    return lambda hands, **given: getattr(pk, kind)(**fixed | given)


show = made("show", analysis="etc", model=MODEL, context=CONTEXT)
reproduce = made("reproduce", model=MODEL)


def gather(hands: SimpleNamespace, **given: Any) -> Any:
    return pk.run_pass(**{"model": hands.loaded, "windows": IDS, **given})


def analyse(hands: SimpleNamespace, **given: Any) -> Any:
    return pk.analyse(**{"analysis": "etc", "gathered": hands.gathered, **given})


def load(_: SimpleNamespace, **given: Any) -> Any:
    return pk.load(given.pop("model", MODEL), **given)


def select(hands: SimpleNamespace, **given: Any) -> Any:
    return hands.result.select(**given)


def table(hands: SimpleNamespace, **given: Any) -> Any:
    (hands.folder / "a.csv").write_text("layer,head,score\n0,0,1\n0,1,2\n")
    return pk.read_head_table(given.pop("path", hands.folder / "a.csv"), **given)


def engine(_: SimpleNamespace, **given: Any) -> Any:
    return pk.Engine().result(**given)


MISUSES: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    # what is done, with which arguments, words of the sentence
    (show, {"analysis": 5}, "No analysis 5"),
    (show, {"analysis": "nope"}, "No analysis 'nope'"),
    (show, {"model": 5}, "a name, a path or a dictionary of fields as 'model', got 5"),
    (show, {"model": torch.nn.Linear(1, 1)}, "as 'model', got Linear"),
    (show, {"corpus": 5}, "a name, a path or a dictionary of fields as 'corpus', got 5"),
    (show, {"corpus": {"nam": "bible"}}, "'nam' of 'corpus'"),
    (show, {"context": "32"}, "whole number as context, got '32'"),
    (show, {"context": np.zeros((9, 9))}, "whole number as context, got array"),
    (show, {"windows": True}, "'windows' of 'run'"),
    (show, {"windows": 0}, "'windows' of 'run'"),
    (show, {"positions": 5}, "whole numbers as query positions, got 5"),
    (show, {"positions": (5.5,)}, "whole number as query position, got 5.5"),
    (show, {"positions": ()}, "'positions' of 'run'"),
    (show, {"gather": ("keys",)}, "got 'gather'"),
    (show, {"query": "63"}, "whole number as query position, got '63'"),
    (show, {"head": 5}, "A head is written"),
    (show, {"params": "skip=4"}, "a dictionary as 'params'"),
    (show, {"params": {"skip": "4"}}, "'skip' of 'etc'"),
    (show, {"params": {"skp": 4}}, "'skp' of 'etc': there is no such one"),
    (show, {"skip": 4}, "give it in 'params'"),
    (show, {"text": 8}, "fields of a run"),
    (show, {"engine": "x"}, "an Engine as 'engine', got 'x'"),
    (load, {"model": 5}, "as 'model', got 5"),
    (load, {"device": "gpu"}, "'device' of 'execution'"),
    (gather, {"model": 5}, "as 'model', got 5"),
    (gather, {"windows": "She sells"}, "integers of shape"),
    (gather, {"windows": [[1, 2], [3]]}, "unequal lengths"),
    (gather, {"windows": -IDS}, "Token ids must lie"),
    (gather, {"windows": IDS + 10**6}, "make the windows with the tokenizer of"),
    (gather, {"windows": IDS.astype(float)}, "integers of shape"),
    (gather, {"windows": IDS[0]}, "integers of shape"),
    (gather, {"windows": IDS[:0]}, "integers of shape"),
    (gather, {"queries_per_position": 0}, "'queries_per_position' of 'run'"),
    (gather, {"batch": 0}, "'batch' of 'execution'"),
    (gather, {"positions": 5}, "query positions, got 5"),
    (gather, {"positions": (400,)}, "No query position below 29"),
    (gather, {"gather": ("zzz",)}, "No statistic 'zzz'"),
    (gather, {"batch": 1.5}, "'batch' of 'execution'"),
    (analyse, {"gathered": None}, "what pk.run_pass returned, got None"),
    (analyse, {"skp": 4}, "'skp' of 'etc': there is no such one"),
    (analyse, {"analysis": "intervention", "change": "remove"}, "pk.show"),
    (select, {"layer": 1.5}, "whole number as layer, got 1.5"),
    (select, {"layer": -1}, "No layer -1"),
    (reproduce, {"model": "nope"}, "'nope' is not on this machine"),
    (reproduce, {"figures": "x"}, "'figure'"),
    (table, {"path": 5}, "got 5"),
    (table, {"shape": (2.5, True)}, "(layers, heads)"),
    (made("Store"), {"limit_gb": float("nan")}, "a size in GB above 0"),
    (made("Store"), {"directory": 5}, "a directory for the store, got 5"),
    (made("Engine"), {"store": "x"}, "a Store as 'store', got 'x'"),
    (engine, {"request": "etc"}, "'request' needs 'run'"),
    (made("view", analysis="etc", model=MODEL), {"address": 5}, "such as http://localhost"),
    (made("CorpusSpec"), {"nam": "bible"}, "'nam' of 'corpus': there is no such one"),
    (made("ModelSpec"), {}, "'model' needs 'name'"),
    (made("Request"), {"analysis": "etc", "run": {}}, "'run' needs 'model'"),
]


@pytest.mark.usefixtures("no_worker")
@pytest.mark.parametrize(
    ("act", "given", "words"),
    MISUSES,
    ids=[f"{words} {number}" for number, (_, _, words) in enumerate(MISUSES)],
)
def test_misuse(hands: SimpleNamespace, act: Callable[..., Any], given: Any, words: str) -> None:
    with pytest.raises(PosKernelError) as caught:
        act(hands, **given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_a_value_that_a_result_does_not_hold(hands: SimpleNamespace) -> None:
    for ask in (hands.result.only, hands.result.text_of):
        with pytest.raises(PosKernelError, match="No value 'nope' in 'etc': expected one of etc, "):
            ask("nope")


def test_a_pass_that_gathered_too_little(hands: SimpleNamespace) -> None:
    with pytest.raises(PosKernelError) as caught:
        pk.analyse("entropy", hands.little)
    assert "gather=('entropy',)" in str(caught.value)
    with pytest.raises(PosKernelError) as caught:
        pk.analyse("profile", hands.little)
    assert "gather=('keys', 'queries', 'patterns', 'residuals', 'scores',)" in str(caught.value)


@pytest.mark.usefixtures("near_worker")
def test_one_worker_a_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[Path] = []
    child = engines.Child

    def count(module: str, store: pk.Store, *rest: Any) -> Any:
        started.append(store.directory)
        return child(module, store, *rest)

    monkeypatch.setattr(engines, "Child", count)
    small = {"context": CONTEXT, "windows": 3}
    for skip in (1, 2):
        assert skip == pk.show("etc", MODEL, params={"skip": skip}, **small).params["skip"]
    pk.view("profile", MODEL, **small)
    pk.reproduce(MODEL, figures_of("attn-only-2l")[:1], **small)
    assert [tmp_path] == started

    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "other"))
    pk.show("etc", MODEL, **small)
    pk.show("profile", MODEL, **small)
    assert [tmp_path, tmp_path / "other"] == started


def test_a_question_that_is_broken_off(
    workers: list[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pk.show("etc", MODEL, context=CONTEXT)

    (task,) = workers[0].hear()["tasks"]
    assert {"cancel": task["key"]} == workers[0].hear()


def test_windows_that_were_dealt_stay_in_their_groups(hands):
    ids = np.resize(IDS, (20, IDS.shape[1]))
    ids[:, 1] = np.arange(20)
    dealt = pk.run_pass(hands.loaded, Cut(ids, "documents"), gather=("queries",))
    plain = pk.run_pass(hands.loaded, ids, gather=("queries",))
    assert ("documents", "stretches") == (dealt.header.dealt, plain.header.dealt)
    order = [2 * group + place for place in range(2) for group in range(10)]
    np.testing.assert_allclose(
        plain.arrays["queries"], dealt.arrays["queries"][:, :, :, order], atol=1e-6
    )


@pytest.mark.usefixtures("near_worker")
def test_watch() -> None:
    """Results of more and more windows, at the chosen head and position; then the whole."""
    asked = {"query": 61, "head": "L1H3", "context": 64, "windows": 40}
    found = [*pk.watch("etc", MODEL, **asked)]
    assert [4, 40] == [found[at].provenance["windows"] for at in (0, -1)]
    assert {()} == {each.values["etc"].shape for each in found}
    assert pk.show("etc", MODEL, **asked).fingerprint == found[-1].fingerprint
