"""What readers call a model: the title of its weights wherever its name could mislead."""

import json
import re
from dataclasses import replace

import pytest

import poskernel_core as pk
from pages import NAMES
from poskernel_core.analyses.comparison.pins import read_pins
from poskernel_core.analyses.comparison.spec import told_together
from poskernel_core.analyses.views import figure_of
from poskernel_core.engine.provenance import from_entry, to_entry
from poskernel_core.export import files
from poskernel_core.models import catalog
from poskernel_core.models.curated import BUNDLED_MODELS
from poskernel_core.models.stored import PACKAGED, title_of
from poskernel_core.plotting.by_axes import by_axes
from tests.support.bound import bound, headings, opened_as_linked, words

NAME, OTHER = "smollm2-135m-instruct-q4", "HuggingFaceTB/SmolLM2-135M"
TITLE = "SmolLM2-135M-Instruct, 4 bits (Q4_1)"


def answer(engine, name, **chosen):
    return pk.show(name, NAME, engine=engine, **chosen)


def test_of_the_weights_not_of_the_name(shipped):
    print_ = PACKAGED[NAME].fingerprint
    assert [TITLE, NAME, NAME] == [title_of(NAME, each) for each in (print_, "", None)]
    assert OTHER == title_of(OTHER, print_) == catalog.title_here(OTHER)
    located = catalog.locate(NAME)
    assert {TITLE} == {located.title, catalog.title_here(NAME)}
    assert NAME == located.spec.name
    for name in BUNDLED_MODELS:
        assert name == catalog.locate(name).title == catalog.title_here(name)


def test_a_directory_of_that_name_has_no_title(monkeypatch, tmp_path, model_dirs):
    """A model of somebody else's, named by a folder next to which the server was started."""
    (tmp_path / NAME).symlink_to(model_dirs["llama"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("poskernel_core.models.catalog.packaged_file", lambda name: None)
    assert NAME == catalog.locate(NAME).title == catalog.title_here(NAME)


def test_all_that_leaves_a_result_says_it(shipped):
    """The name, which is part of every key, stands beside it where programs read."""
    found = answer(shipped, "kernel", head="L16H0")
    for said in (files.caption, files.signature):
        assert TITLE in said(found)
        assert NAME not in said(found)
    for cited in (files.citation, files.bibtex):
        text = cited(found, "Kernels").replace(r"\_", "_")
        assert TITLE in text
        assert NAME not in text
    assert f"<title>{TITLE}, L16H0, n = 400: Kernels" in files.to_html(
        [], found, "k", title="Kernels"
    )
    printed = json.loads(files.to_json(found))
    for part in (printed["run"], printed["identity"]):
        assert (NAME, TITLE) == (part["model"], part["model_title"])
    table = files.to_csv(found)
    assert f"# model: {NAME}\n# model_title: {TITLE}\n" in table
    assert f'"{NAME}","{TITLE}",16,0,400,' in table
    assert {TITLE} == {*files.to_frame(found)["model_title"]}
    assert files.file_stem(found, "k").startswith(f"{NAME}-L16H0")
    unknown = replace(found, provenance={"model": NAME})
    assert f"model {NAME}, " in files.caption(unknown)


def test_a_stored_entry_holds_none(shipped):
    """It is said as an entry is read: what is stored stays as it is, and so does its key."""
    header, arrays = to_entry(answer(shipped, "sinks"))
    header["provenance"].pop("model_title")
    assert TITLE == from_entry((header, arrays)).model_title
    assert "model_title" not in header["provenance"]
    header["provenance"]["model_fingerprint"] = "0" * 64
    assert NAME == from_entry((header, arrays)).model_title


def test_figures_and_compared_models_say_it(shipped):
    etc, depth = (answer(shipped, name) for name in ("etc", "depth"))
    assert f"etc of {TITLE}" == by_axes(etc.only("etc")).layout.title.text
    assert figure_of(depth).data[0].name.startswith(TITLE)
    assert f"L1H2 {TITLE}" == read_pins(f"L1H2@{NAME}")[0].label
    both = told_together([etc.provenance, {"model": "demo-gpt2", "model_title": "demo-gpt2"}])
    assert (f"{NAME}, demo-gpt2", f"{TITLE}, demo-gpt2") == (both["model"], both["model_title"])


@pytest.mark.parametrize("name", NAMES)
def test_no_page_calls_it_otherwise(shipped_only, name):
    """A link by the name opens the model; no text says the name, which stands in addresses."""
    app = opened_as_linked(name, model=NAME)
    menu = bound(app)["model"]
    assert TITLE == menu.options[0]
    assert NAME not in menu.options
    said = [words(app), *headings(app), *(each.label for each in app.expander)]
    texts = re.sub(r"\]\([^)]*\)", "]", "\n".join(said).replace("\\", ""))
    assert (f"{TITLE} · L16H0 · n = 400" in texts) == (menu.value == NAME)  # else one is lent
    assert NAME not in texts
    assert TITLE in texts


def test_models_to_download_are_marked_in_the_menu(shipped, monkeypatch):
    assert {"nobody/nothing"} == catalog.to_download(
        ["demo-gpt2", "smollm2-135m-instruct-q4", "nobody/nothing"]
    )
    monkeypatch.setattr(catalog, "to_download", lambda names: {"demo-rotary"} & {*names})
    marked = [each for each in bound(opened_as_linked())["model"].options if "on the" in each]
    assert ["demo-rotary (on the hub)"] == marked
