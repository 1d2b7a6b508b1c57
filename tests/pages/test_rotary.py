"""The page on rotary spectra, as a script: a rotary model's figures, and what others are told."""

import pytest
from streamlit.testing.v1 import AppTest

from pages.shared.jobs import results
from tests.support.bound import bound, fine, opened_as_linked, press, words
from tools.recorded import figures_on

PAGE = "rotary_spectrum"
CARDS = ("clocks", "amplitudes", "usage", "shares", "logit", "equivariant", "without")
SMALL = {"context": "53", "windows": "20"}
TITLE = "Place, content, and both together"
WORDS = "Not computed yet: the shares of place and content."


@pytest.fixture
def show(computed, monkeypatch, rotary):
    monkeypatch.setenv("POSKERNEL_MODELS", f"demo-gpt2,{rotary}")

    def go(page: str = PAGE, **parameters: str) -> AppTest:
        return fine(opened_as_linked(page, **parameters))

    return go


@pytest.mark.slow
def test_a_rotary_model(show, rotary):
    app = show(model=rotary, head="L1H2", **SMALL)

    assert [*CARDS] == figures_on(app)
    text = words(app)
    assert "Dominant wavelength: **" in text
    assert "| without long ones |" in text
    assert 1 == len([each for each in app.selectbox if each.label == "Colour heads by"])
    for measure in ("dominant wavelength", "weight of short wavelengths", "mean share of keys"):
        box = bound(app)["rotaryby"]
        fine(box.select(measure).run())
    the_bands_are_the_readers(show, app, rotary)


def the_bands_are_the_readers(show, app, rotary):
    table = next(each.value for each in app.markdown if "| without long" in each.value)
    bound(app)["short"].set_value(32).run()
    fine(bound(app)["long"].set_value(106).run())
    other = next(each.value for each in app.markdown if "| without long" in each.value)
    assert table != other
    linked = show(model=rotary, head="L1H2", short="32", long="106", **SMALL)
    assert other in [each.value for each in linked.markdown]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["all heads", "the selected layer", "the selected head"])
def test_changed_bands(show, rotary, where):
    app = show(model=rotary, head="L1H2", changed="true", changedin=where, **SMALL)

    assert [*CARDS, "changed-loss", "changed-frozen", "changed-removed"] == figures_on(app)
    (table,) = (each.value for each in app.markdown if "| long removed |" in each.value)
    assert 9 == len(table.splitlines())


def test_a_model_that_turns_nothing(show, monkeypatch):
    """A line says so, and nothing is asked for."""
    asked, model = [], "demo-attn-2l"
    monkeypatch.setattr(results, "fetch", lambda *each: asked.append(each))
    app = show(model=model)
    assert model == bound(app)["model"].value
    (told,) = (each.value for each in app.info)
    assert "does not rotate its queries and keys" in told
    assert [] == asked


@pytest.mark.slow
def test_the_helix_leads_here(show, rotary):
    app = show("helix", model=rotary, **SMALL)
    assert any("](rotary_spectrum?" in each.value for each in app.info)
    figures = {"helix", "morph", "variance", "angles_residual", "angles_position", "shape"}
    assert figures == {*figures_on(app)}
    (angles,) = (each.value for each in app.dataframe if "angles" in each.value)
    assert [] == [row for row in angles["angles"] if "GPT-2" in row or "W_pos" in row]


@pytest.mark.slow
def test_measures_of_rotary_heads_on_the_landing_page(show, rotary):
    measures = {"dominant wavelength", "weight of long wavelengths", "mean share of queries"}
    app = show("etc_heatmap", model=rotary, **SMALL)
    assert measures <= set(bound(app)["measure"].options)
    for measure in measures:
        fine(bound(app)["measure"].select(measure).run())
        assert measure == bound(app)["measure"].value
    bound(app)["model"].select("demo-gpt2").run()
    assert not measures & set(bound(app)["measure"].options)
    assert "effective token count" == bound(app)["measure"].value


@pytest.mark.slow
def test_place_and_content_of_one_head(show, rotary):
    app = show("head", model=rotary, head="L1H2", **SMALL)
    assert WORDS in words(app)
    assert "places" not in figures_on(app)
    press(app, "compute-places")
    assert "places" in figures_on(app)
    assert WORDS not in words(app)
    assert "arrange=place+and+content" in words(app)


@pytest.mark.slow
def test_place_and_content_of_all_heads(show, rotary):
    asked = SMALL | {"skip": "2", "arrange": "place and content"}
    app = show("explore", model=rotary, head="L1H2", **asked)
    assert WORDS in words(app)
    assert "heads" not in figures_on(app)
    press(app, "compute-places")
    assert ["heads"] == figures_on(app)
    (table,) = (each.value for each in app.dataframe)
    shares = table[[f"{name} (share of variance)" for name in
                    ("place share", "content share", "share of both together")]]  # fmt: skip
    assert shares.shape == (18, 3)
    assert shares.sum(axis=1).to_numpy() == pytest.approx(1)


def test_place_and_content_need_rotation(show):
    assert TITLE not in words(show("head", model="demo-attn-2l", context="64", windows="20"))
    app = show("explore", model="demo-attn-2l", context="64", windows="20")
    (arrange,) = (each for each in app.button_group if each.key == "arrange")
    assert ["two measures", "near kernels"] == [*arrange.options]
