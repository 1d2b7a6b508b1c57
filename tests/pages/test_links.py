"""Links that cannot be honoured: the page says what they ask for and what is shown instead."""

import pytest

from pages.shared.choices import links
from pages.shared.choices.choices import waits
from pages.shared.jobs import results
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.interventions.presets import presets_for
from poskernel_core.models.known import telling_head
from tests.support.bound import bound, choose, chosen, opened, opened_as_linked
from tools.recorded import page_names

METHODS = "methods"
HEATMAP = "etc_heatmap"
INTERVENTIONS = "interventions"
TYPED = ("text_input", "text_area")
NONSENSE = {"number_input": "999999", "slider": "999999", "select_slider": "999999"}


@pytest.fixture
def follow(monkeypatch):
    """Open a page by a link, with nothing computed."""
    monkeypatch.setattr(results, "fetch", lambda *_: None)
    return opened_as_linked


def test_what_does_not_fit_is_named_in_one_notice(follow):
    app = follow(METHODS, head="L99H99", query="99999", skip="999", n="99999", seed="1")
    assert not app.exception
    (told,) = (each.value.replace("\\", "") for each in app.warning)
    for sentence in (
        "asks for head L99H99; shown is L3H7 instead: offered are 32 values from L0H0 to L3H7",
        "asks for query 99999; shown is 511 instead: offered are 33 values from 15 to 511.",
        "asks for skip 999; shown is 32 instead: offered are 0 to 32.",
        "The link gives n 99999, which this page does not use.",
        "The link gives seed 1, which this page does not use.",
    ):
        assert sentence in told
    (told,) = follow(HEATMAP, kinds=["local", "foo"]).warning
    assert "asks for kinds local, foo; shown is local instead" in told.value


OLD = [  # each table of `pages.shared.choices.links`
    (HEATMAP, {"cell": "l0h1", "texts": "100", "measure": "fidelity"},
     {"head": "L0H1", "windows": "100", "measure": "distance to observed attention"}),
    ("induction_recency", {"silenced0": ["L0H1", "L0H2"], "silencedhow": "pattern made uniform",
                           "flatten": "true", "cell": "L1H2"},
     {"ablated0": ["L0H1", "L0H2"], "ablation": "uniform attention", "equalise": "true",
      "head": "L1H2"}),
    (INTERVENTIONS, {"change": "switch heads off", "silenced": ["L1H2", "L1H3"]},
     {"change": "ablate heads", "ablated": ["L1H2", "L1H3"]}),
    ("compare", {"second": "demo-attn-2l", "beside": "fidelity",
                 "pins": "L0H1@demo-gpt2;context=64;texts=50"},
     {"second": "demo-attn-2l", "compared": "distance to observed attention"}),
    (METHODS, {"method": "kernel-folds"}, {"method": "kernel-replicates"}),
    ("helix", {"prompts": "texts of the corpus"}, {"prompts": "windows of the corpus"}),
    ("positional_kernels", {"source": "sampled texts", "cell": "L2H3", "texts": "50"},
     {"source": "sampled windows", "head": "L2H3", "windows": "50"}),
    ("helix", {"model": "demo-gpt2-smooth"}, {"model": "demo-gpt2"}),
    ("compare", {"model": "demo-attn-2l", "second": "demo-gpt2-smooth"},
     {"model": "demo-attn-2l", "second": "demo-gpt2"}),
]  # fmt: skip


def test_every_new_name_exists():
    titles = {declared.title for each in ANALYSES.values() for declared in each.measures}
    for table, known in ((links.QUESTIONS, {*ANALYSES}), (links.MEASURES, titles)):
        assert set(table.values()) <= known
        assert not table.keys() & known


@pytest.mark.parametrize(("script", "old", "new"), OLD)
def test_an_old_link_opens_as_it_was_meant(follow, script, old, new):
    app = follow(script, **old)
    assert not app.exception
    assert not app.warning
    assert not (old.keys() - new.keys()) & app.query_params.keys() - {"pins"}
    for key, value in new.items():
        held = chosen(app, key)
        shown = held if isinstance(held, list) else str(held).replace("True", "true")
        assert value == app.query_params.get(key, value) == shown


def test_old_pins_are_kept(follow):
    app = follow("compare", pins="L0H1@demo-gpt2-smooth;context=64;texts=50,L2H6@demo-gpt2-smooth")
    assert "L0H1@demo-gpt2;context=64;windows=50,L2H6@demo-gpt2" == app.query_params["pins"]
    assert not app.warning


def test_the_name_of_today_wins(follow):
    """And heads are read in any case."""
    app = follow(HEATMAP, cell="L0H1", head="l2h3", texts="100", windows="50")
    assert ("L2H3", 50) == (chosen(app, "head"), bound(app)["windows"].value)
    assert not app.warning


def test_a_link_that_fits_says_nothing(follow):
    link = {"head": "L1H3", "query": "127", "skip": "0", "start": "false", "windows": "50",
            "context": "256", "measure": "half-mass distance", "kinds": ["local", "uniform"],
            "lshare": "0.25", "order": "largest first"}  # fmt: skip
    app = follow(HEATMAP, **link)
    assert not app.exception
    assert not app.warning
    choose(app, "head", "L1H1")  # of the rest nothing is lost, an end of a slider least of all
    assert link | {"head": "L1H1"} == dict(app.query_params)


def test_the_notice_goes_with_a_choice(follow):
    """Another model says what it lacks, until the reader chooses."""
    app = follow(HEATMAP, head="L99H99", query="99999")
    choose(app, "head", "L3H6")
    assert 1 == app.warning[0].value.count("The link asks for")
    bound(app)["model"].select("demo-attn-2l").run()
    assert "L1H6" == chosen(app, "head")
    told = app.warning[0].value.replace("\\", "")
    assert "demo-attn-2l has no head L3H6; shown is L1H6 instead." in told
    assert "The link asks for" not in told
    choose(app, "head", "L0H1")
    assert not [each for each in app.warning if "head" in each.value]


def test_an_unknown_model_stops_the_page(follow):
    app = follow(HEATMAP, model="nonsense", head="L2H5")
    sentence = app.error[0].value.replace("\\", "")
    for part in ("asks for model 'nonsense'", "demo-gpt2", "POSKERNEL_MODELS",
                 "POSKERNEL_ALLOW_ANY_MODEL"):  # fmt: skip
        assert part in sentence
    assert "nonsense" == app.query_params["model"]
    bound(app)["model"].select("demo-gpt2").run()
    assert not app.error
    assert ("demo-gpt2", "L2H5") == (bound(app)["model"].value,
                                     chosen(app, "head"))  # fmt: skip
    assert not app.warning


@pytest.mark.parametrize("model", ["demo-gpt2", "demo-attn-2l"])
def test_a_model_opens_on_its_telling_head(follow, model):
    cell = chosen(follow(METHODS, model=model), "head")
    assert presets_for(model)[0].cell == cell == telling_head(model)


@pytest.mark.parametrize("name", page_names())
def test_what_a_page_refuses_it_says_with_what_it_offers(shipped_only, name):
    """Whatever widget a link is about, on one page those of the sidebar too.

    Words that readers type are taken as they are.
    """

    def tried(app):
        found = bound(app if name == METHODS else app.main)
        return {key: found[key] for key in found.keys() - {"model", "revision"}}

    link = {
        key: NONSENSE.get(widget.type, "nonsense")
        for key, widget in tried(opened(name)).items()
        if widget.type not in TYPED and not getattr(widget.proto, "accept_new_options", False)
    }
    if name == METHODS:
        assert {"corpus", "context", "windows", "dtype", "start"} < link.keys()
    app = opened(name, **link)
    said = " ".join(each.value for each in app.warning).replace("\\", "")
    for key, widget in tried(app).items():
        if key in link and str(widget.value) != link[key]:
            assert f"asks for {key} {link[key]}; shown is " in said
    assert said.count("; shown is ") == said.count(" instead: offered are ")


def test_a_figure_that_is_not_there_yet_takes_its_part_of_a_link_along(follow, monkeypatch):
    """What a page may still draw is not said to have no use; what no page has is."""
    monkeypatch.setattr(results, "fetch", lambda *_: waits())
    app = follow("induction_recency", rlength="16", n="1")
    assert not app.warning
