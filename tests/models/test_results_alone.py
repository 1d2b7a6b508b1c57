"""A model on offer by its results alone: what is there is shown, the rest says what is missing."""

import json
import shutil
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poskernel_core as pk
from pages.shared.jobs import results
from poskernel_core.analyses import find
from poskernel_core.cli.main import main
from poskernel_core.common.errors import BadArchive, ComputeDisabled, UnknownModel
from poskernel_core.common.specs import default_positions
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.plan import plan_of
from poskernel_core.models import catalog
from poskernel_core.models.stored import MANIFEST, read
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.models.training import training_run
from poskernel_core.storage.store import Store
from poskernel_core.storage.view import export_view, for_display
from tests.support.bound import bound, opened_as_linked, positions

CONTEXT, WINDOWS, QUERIES, SKIPS = 31, 7, (5, 23), (0, 3)

pytestmark = pytest.mark.usefixtures("near_workers")


def asked(name, run, **params):
    question = find(name)
    return plan_of(question, run, question.params.model_validate(params))


@pytest.fixture(scope="module")
def made(tmp_path_factory, model_dirs, near_workers):
    """A file of results, the name of its model, and the answers that it was made from."""
    root = tmp_path_factory.mktemp("alone")
    folder = shutil.copytree(model_dirs["llama"], root / "model")
    engine = Engine(Store(root / "store"))
    run = describe_run(str(folder), context=CONTEXT, windows=WINDOWS, positions=QUERIES)
    wanted = [asked("etc", run, skip=skip) for skip in SKIPS]
    wanted += [asked("kernel", run, skip=s, query=n) for s in SKIPS for n in QUERIES]
    answers = {each.key: engine.result(each) for each in wanted}
    located = catalog.locate(str(folder))
    assert len(answers) == export_view(engine.store, located, root / "view.zip")
    engine.close()
    shutil.rmtree(folder)
    return root / "view.zip", str(folder), run, answers


@pytest.fixture
def offered(made, monkeypatch, tmp_path):
    """The same, while the host offers the file; its weights are gone."""
    monkeypatch.setenv("POSKERNEL_MODELS", str(made[0]))
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    return made


def test_it_is_found_by_its_name_and_by_its_file(offered):
    file, name, run, _ = offered

    located = catalog.locate(name)
    assert located == catalog.locate(file) == catalog.find_again(run.model)
    assert name in [entry.name for entry in catalog.entries()]
    assert str(file) not in [entry.name for entry in catalog.entries()]
    assert catalog.is_local(name)
    assert training_run(name) is None
    assert load_tokenizer(located) is None
    assert (QUERIES, SKIPS) == (located.shown.queries, located.shown.skips)
    again = describe_run(name, positions=QUERIES)
    assert run == again
    assert (CONTEXT, WINDOWS) == (again.context, again.windows)


@pytest.mark.parametrize("told", [True, False])
def test_results_of_fewer_positions(tmp_path, model_dirs, monkeypatch, fresh_engine, told):
    """A view tells how many positions its runs record; one from before that has all of them."""
    folder, view = shutil.copytree(model_dirs["llama"], tmp_path / "model"), tmp_path / "view.zip"
    with monkeypatch.context() as patch:
        patch.setattr("poskernel_core.models.geometry.KEPT", 1 if told else 3e9)
        run = describe_run(str(folder), context=50, windows=WINDOWS)
        fresh_engine.result(asked("profile", run))
        export_view(fresh_engine.store, catalog.locate(str(folder)), view)
    with zipfile.ZipFile(view) as archive:
        assert ("step" in json.loads(archive.read(MANIFEST))["shown"]) == told
    if not told:
        monkeypatch.setattr("poskernel_core.models.geometry.KEPT", 1)
    shutil.rmtree(folder)
    monkeypatch.setenv("POSKERNEL_MODELS", str(view))

    assert (13 if told else 50) == len(run.positions)
    assert run == describe_run(str(folder))
    export_view(fresh_engine.store, catalog.locate(str(folder)), tmp_path / "again.zip")
    assert read(view).shown == read(tmp_path / "again.zip").shown
    other = describe_run(str(folder), context=40)
    assert default_positions(40, step=1 if told else 4) == other.positions


def test_what_is_there_is_the_same_up_to_a_quarter_of_its_error(offered, fresh_engine):
    _, _, run, answers = offered
    for key, before in answers.items():
        found = fresh_engine.cached(asked(before.analysis, run, **before.params))
        assert key == asked(before.analysis, run, **before.params).key
        assert before.provenance == found.provenance
        for value, exact in before.values.items():
            error = before.errors.get(value, np.zeros_like(exact))
            room = np.nan_to_num(error) / 4 + np.abs(np.nan_to_num(exact)) * 2**-8
            room = room + np.nanmax(np.abs(exact), axis=-1, keepdims=True, initial=0) * 2**-14
            assert (np.abs(np.nan_to_num(found.values[value] - exact)) <= room).all(), value
        for value, error in before.errors.items():
            highest = np.nanmax(error, initial=0)
            np.testing.assert_allclose(
                found.errors[value], error, rtol=1 / 8 + 1e-6, atol=highest * 2**-14
            )


def test_what_is_not_there_says_how_to_get_it(offered, fresh_engine, capsys):
    _, name, run, _ = offered
    with pytest.raises(ComputeDisabled, match=r"Only results of .*ask for the model itself"):
        fresh_engine.submit(asked("etc", run, skip=2))
    with pytest.raises(ComputeDisabled, match="Only results of"):
        pk.load(name, device="cpu")
    with pytest.raises(UnknownModel, match="none of revision 'step-3'"):
        catalog.locate(name, "step-3")

    assert 0 == main(["models"])
    assert "results alone" in capsys.readouterr().out
    assert 2 == main(["show", "etc", name, "--skip", "2"])
    told = capsys.readouterr().err
    assert "Only results of" in told
    assert "Traceback" not in told


def test_a_page_shows_what_is_there(offered, fresh_engine, monkeypatch):
    _, name, _, _ = offered
    monkeypatch.setattr(results, "engine", lambda: fresh_engine)
    app = opened_as_linked(model=name)

    assert not app.exception
    assert not app.error
    assert list(QUERIES) == positions(app)
    assert list(SKIPS) == [int(each) for each in bound(app)["skip"].options]
    assert any("Stored results only" in each.value for each in app.caption)


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.pop("config"),
        lambda about: about.pop("shown"),
        lambda about: about["shown"].update(context=0),
        lambda about: about.update(model=7),
        lambda about: about.update(config=[1]),
        "an entry as version 1.0.0 wrote it",
    ],
)
def test_a_file_that_says_nothing_of_its_model(made, tmp_path, monkeypatch, change):
    bad = tmp_path / "bad.zip"
    with zipfile.ZipFile(made[0]) as source, zipfile.ZipFile(bad, "w") as target:
        about = json.loads(source.read(MANIFEST))
        if isinstance(change, str):
            target.writestr(64 * "a", b"packed")
        else:
            change(about)
        target.writestr(MANIFEST, json.dumps(about))
    with pytest.raises(BadArchive, match=r"'bad\.zip' is no file of results that"):
        read(bad)
    monkeypatch.setenv("POSKERNEL_MODELS", f"{bad},{tmp_path / 'none.zip'},{made[0]}")
    assert made[1] in [entry.name for entry in catalog.entries()]
    with pytest.raises(BadArchive, match="cannot be read"):
        catalog.locate(str(tmp_path / "none.zip"))


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_rounding_by_the_error(seed, scale):
    rng = np.random.default_rng(seed)
    value = rng.normal(size=(37, 41)) * 10.0 ** rng.integers(-scale, scale, size=(37, 41))
    error = np.abs(rng.normal(size=(37, 41))) + 1e-9
    error[3, 5], value[7, 2] = np.nan, np.nan
    entry = {}, {"values/x": value, "errors/x": error}

    _, once = for_display(entry)
    moved = np.nan_to_num(np.abs(once["values/x"] - value))
    size = np.nan_to_num(np.abs(value))
    room = np.nan_to_num(error) / 4 + np.isnan(error) * size * 2**-8 + size * 2**-23
    assert (moved <= room).all()
    assert np.isnan(once["values/x"][7, 2])
    assert np.isfinite(once["values/x"][3, 5])


def test_a_server_opens_on_the_model_that_the_file_is_about(offered):
    assert offered[1] == catalog.name_in(str(offered[0]))
    assert "demo-gpt2" == catalog.name_in("demo-gpt2")
    assert "none.zip" == catalog.name_in("none.zip")


def test_its_text_need_not_be_here(tmp_path, monkeypatch, model_dirs):
    texts = tmp_path / "mine.txt"
    texts.write_text("She sells sea shells by the sea shore. " * 200, encoding="utf-8")
    folder = shutil.copytree(model_dirs["gpt2"], tmp_path / "model")
    engine = Engine(Store(tmp_path / "store"))
    run = describe_run(str(folder), corpus=str(texts), context=23, windows=5)
    wanted = asked("etc", run, skip=2)
    before = engine.result(wanted)
    located, file = catalog.locate(str(folder)), tmp_path / "view.zip"
    assert 1 == export_view(engine.store, located, file)
    engine.close()
    shutil.rmtree(folder)
    texts.unlink()

    monkeypatch.setenv("POSKERNEL_MODELS", str(file))
    for corpus in (None, str(texts)):
        again = describe_run(str(folder), corpus=corpus)
        assert wanted.key == asked("etc", again, skip=2).key
    reader = Engine(Store(tmp_path / "other"))
    found = reader.cached(asked("etc", again, skip=2))
    assert before.provenance == found.provenance
    reader.close()
