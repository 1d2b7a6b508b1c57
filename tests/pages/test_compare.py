"""Pinned heads in a browser: pinned, kept from page to page and in links, compared."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.support.bound import bound, figure_on, opened, opened_as_linked
from tests.support.visit import (
    console,
    go,
    hash_of,
    no_trouble,
    parameter,
    redraws,
    settle,
    side_cell,
    traces,
    visit,
)
from tests.support.visit_tables import click_name, click_row, column
from tools.recorded import figures_on

TEXTS = ";windows=50"
TWO = f"L2H6@demo-gpt2{TEXTS},L2H5@demo-gpt2{TEXTS}"


def pinned(page):
    return (parameter(page, "pins") or "").split(",")


@pytest.mark.browser
def test_pinned_from_page_to_page(page, server, new_context):
    """Pinned on two pages, compared, restored by a link, unpinned; then the heads like one."""
    said = console(page)
    visit(page, server.link(head="L2H6"))
    page.get_by_role("button", name="Pin L2H6").click()
    expect(page.get_by_role("button", name="Unpin L2H6")).to_be_visible()
    go(page, "Overview")
    side_cell(page, "L2H5").click()
    page.get_by_role("button", name="Pin L2H5").click()
    settle(page)
    link = page.get_by_role("link", name="Compare pinned heads (2)")
    asked = parse_qs(urlsplit(link.get_attribute("href") or "").query)
    assert [TWO] == asked["pins"]
    go(page, "Compare")
    assert TWO.split(",") == pinned(page)
    distance = page.get_by_test_id("stMain").get_by_text("Distance between the two kernels")
    expect(distance).to_contain_text(re.compile(r": 0\.0*[1-9]\d* ± 0\.\d+ "))
    measures_side_by_side(page)

    drawn = hash_of(page, "kernels")
    assert {"L2H6, n = 400", "L2H5, n = 400"} <= set(traces(page, "kernels"))
    other = new_context().new_page()
    visit(other, page.url)
    assert drawn == hash_of(other, "kernels")
    unpinned(page)
    heads_like_this_one(page)
    assert [] == said
    no_trouble(page)


def measures_side_by_side(page):
    """A column a head; a clear difference from the first is bold, with its sign."""
    card = page.locator(".st-key-card-measures")
    row = card.get_by_role("row").filter(has_text="attention to the previous token")
    expect(row.locator("strong")).to_have_text(re.compile(r"^−\d+$"))
    expect(card.get_by_role("columnheader")).to_have_text(
        ["Measure", "L2H6, n = 400", "L2H5, n = 400"]
    )


def unpinned(page):
    """A head that is unpinned goes, and so do all."""
    main = page.get_by_test_id("stMain")
    side_cell(page, "L0H0").click()
    with redraws(page, "kernels"):
        main.get_by_role("button", name="Pin L0H0").click()
    assert f"L0H0@demo-gpt2{TEXTS}" == pinned(page)[-1]
    with redraws(page, "kernels"):
        page.locator(".st-key-unpin-0").get_by_role("button").click()
    assert [f"L2H5@demo-gpt2{TEXTS}", f"L0H0@demo-gpt2{TEXTS}"] == pinned(page)
    with redraws(page, "kernels"):
        main.get_by_role("button", name="attention", exact=True).click()
    page.get_by_role("button", name="Unpin all").click()
    expect(page.get_by_text("No head is pinned yet.")).to_be_visible()
    assert parameter(page, "pins") is None


def heads_like_this_one(page):
    """Nearest first, with how many runs were searched; a row pins its head, a name opens it."""
    expect(page.get_by_text(re.compile(r"\d+ heads of \d+ runs?"))).to_be_visible()
    gaps = [float(each) for each in column(page, "alike-table", "TV distance")]
    assert len(gaps) > 3
    assert sorted(gaps) == gaps
    name, model = (column(page, "alike-table", each)[0] for each in ("head", "of"))
    led = click_name(page, "alike-table", 0)
    expect(led.get_by_role("heading", name=f"{name} of {model.split()[0]}")).to_be_visible()
    click_row(page, "alike-table", 0)
    assert [f"{name}@{model.split()[0]}"] == [each.split(";")[0] for each in pinned(page)]


def test_bad_pins_are_named(shipped_only):
    """On this page all of them, and what fits is drawn; elsewhere in a word, and where it says."""
    bad = "L99H0@demo-gpt2,nonsense,L0H0@/etc,L0H0@demo-gpt2;corpus=/etc/passwd"
    app = opened_as_linked("compare", pins=f"{bad},L2H6@demo-gpt2")
    (warned,) = map(unescaped, app.warning)
    assert 4 == len(warned.splitlines())
    for words in ("from L0H0 to L3H7", "nonsense", "model is not offered", "corpus is not offered"):
        assert words in warned
    assert {"unpin-0", "unpin-all"} == {
        each.key for each in app.button if str(each.key).startswith("unpin-")
    }
    assert not app.exception

    (toast,) = opened_as_linked("helix", pins="nonsense,L2H6@demo-gpt2").toast
    assert "the page «Compare» says why" in toast.value


def unescaped(element):
    """What a reader reads of an element in Markdown."""
    return element.value.replace("\\", "")


@pytest.mark.slow
def test_two_models(computed):
    """What is not computed waits for a press, a model at a time; then a measure by depth."""
    pins = "L0H1@demo-attn-2l;context=64;windows=20"
    sizes = {"context": "64", "windows": "20"}
    app = opened("compare", second="demo-attn-2l", head="L2H6", pins=pins, **sizes)
    assert any("L0H1 demo-attn-2l context 64" in unescaped(each) for each in app.caption)
    for key in ("compute-pins", "compute-model-0", "compute-model-1"):
        for button in [each for each in app.button if each.key == key]:
            app = button.click().run()
            assert ([], []) == ([*app.exception], [*app.error])
    assert {"kernels", "depth"} <= {*figures_on(app)}
    assert any("**demo-attn-2l** :small[at n =" in unescaped(each) for each in app.markdown)
    before = figure_on(app, "depth")
    assert {"demo-gpt2", "demo-attn-2l"} <= {each.name for each in before.data}
    bound(app)["compared"].select("distance to observed attention").run()
    assert str(before) != str(figure_on(app, "depth"))


@pytest.mark.browser
def test_a_head_of_the_second_model_is_pinned(page, still):
    visit(page, f"{still.url}/compare?model=demo-gpt2&second=demo-attn-2l")
    grids = page.get_by_test_id("stMain").get_by_role("grid")
    expect(grids).to_have_count(2)
    grids.nth(1).locator("[data-name=L1H0]").click()
    settle(page)
    assert ["L1H0@demo-attn-2l"] == [each.split(";")[0] for each in pinned(page)]
