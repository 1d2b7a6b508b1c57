"""Names of heads in tables: each is a link to the page with everything about that head."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from pages.shared.look.fold import UNFOLDED
from poskernel_core.models.catalog import title_here
from tests.support.server import ROOT
from tools.recorded import open_page, page_names

NAME = re.compile(r"L\d+H\d+")
LINKED = re.compile(r"\[(?:[^][]|\[[^][]*\])*\]\([^)]*\)")
ADDRESSES = {
    "compare": {"pins": "L2H6@demo-gpt2,L1H0@demo-training"},
    "over_training": {"model": "demo-training", "head": "L1H0"},
}
"""What a page is opened with where it shows no table of heads without."""

FOLDS = ("all-heads", "emergence")
"""Tables that are made when they are unfolded."""

OTHERS = {"methods": "the names are those of published figures, beside their model's"}
"""Pages whose tables name heads without a link, and why."""


@pytest.fixture
def shown(shipped_only):
    def show(name):
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
        for field, value in ADDRESSES.get(name, {}).items():
            app.query_params[field] = value
        app.session_state[UNFOLDED] = {*FOLDS}
        open_page(app, name)
        assert [] == [each.value for each in (*app.exception, *app.error)]
        return app

    return show


def unlinked(frame):
    """The cells and headings of a table that are names of heads, and the links, by column."""
    config, data = json.loads(frame.proto.columns or "{}"), frame.value
    bare = [name for name in map(str, data.columns) if NAME.fullmatch(name)]
    links = {}
    for name in data:
        texts = [each for each in data[name] if isinstance(each, str)]
        if config.get(name, {}).get("type_config", {}).get("type") == "link":
            links[name] = texts, config[name]["type_config"]["display_text"]
        else:
            bare += [text for text in texts if NAME.match(text)]
    return bare, links


@pytest.mark.parametrize("name", page_names())
def test_every_name_in_a_table_is_a_link(shown, name):
    app = shown(name)
    if name in OTHERS:
        return
    for frame in app.dataframe:
        bare, links = unlinked(frame)
        assert [] == bare
        for texts, pattern in links.values():
            assert texts
            for text in texts:
                page = urlsplit(text)
                assert "head" == page.path
                assert parse_qs(page.query)["head"] == [re.search(pattern, text)[1]]
    for text in (each.value for each in app.markdown if "|:--|" in each.value):
        assert None is NAME.search(LINKED.sub("", text)), text


def test_a_table_of_another_model_leads_to_that_model(shown):
    """Heads of the published ranking are GPT-2 small's, those like one head of their own runs."""
    ranking = shown("previous_token").dataframe[1].value
    models = {parse_qs(urlsplit(each).query)["model"][0] for each in ranking["head"]}
    assert {"gpt2"} == models

    alike = shown("compare").dataframe[0].value
    asked = [parse_qs(urlsplit(each).query) for each in alike["head"]]
    for each, of in zip(asked, alike["of"], strict=True):
        assert of.startswith(title_here(each["model"][0]))
    assert len({each["model"][0] for each in asked}) > 1
