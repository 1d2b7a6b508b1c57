"""Patterns of the reader's own: exact numbers, in a browser as in Python; what is refused."""

import base64
import json
import re
import zlib

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from playwright.sync_api import Page, expect

import poskernel_core as pk
from poskernel_core.common.errors import BadRequest

LAYERS, HEADS, SIDE = 2, 3, 7
TOKENS = ["<s>", " the", "Ġking", "</script><b>", "\n", "\u202e", " "]
PARTS = ("sum", "position", "content")
INK = {-1: (42, 133, 199), 1: (213, 94, 0)}
PIXEL = """(canvas, [x, y]) => {
  const { width, height } = canvas;
  const at = [Math.floor(x * width), Math.floor(y * height), 1, 1];
  return [...canvas.getContext("2d").getImageData(...at).data];
}"""
EDGE = """(canvas, x) => {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(Math.floor(x * (width - 1)), 0, 1, height);
  return Array.from({ length: height }, (_, at) => data[4 * at + 3]);
}"""
"""How opaque each pixel of a column is."""
CELL = """html => {
  const output = document.getElementById("output");
  output.innerHTML = html;
  for (const dead of output.querySelectorAll("script")) {
    const script = document.createElement("script");
    script.text = dead.textContent;
    dead.replaceWith(script);
  }
}"""
"""As Jupyter and VS Code show the HTML of a cell: scripts in it are made anew."""
STRICT = (
    "<!DOCTYPE html><meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'\"><body><div id='output'></div>"
)


def split(seed: int = 5) -> dict[str, np.ndarray]:
    """Scores of all heads and their two parts, in both directions, some pairs masked."""
    random = np.random.default_rng(seed)
    size = (LAYERS, HEADS, SIDE, SIDE)
    position, content = random.normal(size=(2, *size)) * 10.0 ** random.integers(-6, 3, (2, *size))
    position[:, 1, 2, 4] = -np.inf
    return dict(zip(PARTS, (position + content, position, content), strict=True))


def shares(side: int = SIDE) -> np.ndarray:
    """Attention of every head, without the future."""
    weights = np.tril(np.random.default_rng(3).uniform(0.01, 1, (LAYERS, HEADS, side, side)))
    return weights / weights.sum(-1, keepdims=True)


def numbers_in(page: str) -> np.ndarray:
    """The numbers of a page, by its own description: the four bytes of each stand apart."""
    packed = json.loads(re.search(r'"numbers": ("[^"]*")', page)[1])
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8)
    weights = 256 ** np.arange(4, dtype=np.uint64)
    return (planes.reshape(4, -1).T @ weights).astype(np.uint32).view(np.float32)


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(arrays(np.float32, st.tuples(*[st.integers(1, 3)] * 2, *[st.just(5)] * 2), elements=FLOATS))
def test_every_number_is_kept(pattern):
    page = pk.matrix(pattern, list("abcde")).html()
    np.testing.assert_array_equal(pattern.ravel(), numbers_in(page))


@pytest.mark.parametrize(
    "given",
    [
        torch.tensor(shares(), requires_grad=True),
        torch.tensor(shares(), dtype=torch.bfloat16),
        torch.tensor(shares(), dtype=torch.float16),
        tuple(torch.tensor(layer)[None] for layer in shares()),  # as models return it
        shares().tolist(),
        shares().astype(np.float16),
    ],
    ids=["gradient", "bfloat16", "float16", "of a model", "lists", "half"],
)
def test_whatever_holds_the_numbers(given):
    shown = pk.matrix(given, TOKENS)
    half = isinstance(given, torch.Tensor | np.ndarray) and given.dtype not in (
        torch.float64, np.float64,
    )  # fmt: skip
    assert ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"] == [*shown.labels]
    found = numbers_in(shown.html()).reshape(shares().shape)
    np.testing.assert_allclose(found, shares(), rtol=2**-7 if half else 1e-7)
    assert "Attention of 6 heads on 7 tokens." == repr(shown)


def hidden(of: np.ndarray) -> np.ndarray:
    """Whether a masked array of the tests hides a number."""
    return of < 0.2


ROWS = shares()[0].astype(np.float32)
"""The heads of a layer."""
WIDE = np.stack([ROWS, ROWS], axis=-1)


def layouts():
    """Patterns of every layout, made anew: no sparse tensor outlives its test."""
    return {
        "transposed": ROWS.T.copy().T,
        "Fortran": np.asfortranarray(ROWS),
        "one head": np.asfortranarray(ROWS[1]),
        "backwards": ROWS[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1],
        "strided": WIDE[..., 0],
        "broadcast": np.broadcast_to(ROWS[1], ROWS.shape),
        "big-endian": ROWS.astype(">f4"),
        "64 bits": ROWS.astype(">f8"),
        "of integers": np.asfortranarray((9 * ROWS).astype(">i2")),
        "permuted": torch.tensor(ROWS.transpose(2, 0, 1).copy()).permute(1, 2, 0),
        "of a slice": torch.tensor(WIDE, requires_grad=True)[..., 1],
        "expanded": torch.tensor(ROWS[1]).expand(HEADS, SIDE, SIDE),
        "negated when read": torch.complex(torch.tensor(ROWS), torch.tensor(-ROWS)).conj().imag,
        "sparse": torch.tensor(ROWS).to_sparse(),
        "a frame": pd.DataFrame(ROWS[1]).T.T,
        "a frame of several kinds": pd.DataFrame(ROWS[1]).astype({0: "float64"}),
        "a frame with room for what is missing": pd.DataFrame(ROWS[1]).convert_dtypes(),
        "frames": [pd.DataFrame(each) for each in ROWS],
        "a frame of bits": pd.DataFrame(hidden(ROWS[1])),
        "masked": np.ma.masked_array(ROWS, hidden(ROWS)),
        "masked in Fortran": np.ma.masked_array(ROWS.T.copy(), hidden(ROWS.T)).T,
        "masked integers": np.ma.masked_array((9 * ROWS).astype(int), hidden(ROWS)),
        "masked damage": np.ma.masked_invalid(np.where(hidden(ROWS), np.nan, ROWS)),
        "masked heads": [np.ma.masked_array(each, hidden(each)) for each in ROWS],
        "all masked": np.ma.masked_all((SIDE, SIDE)),
    }


@pytest.mark.parametrize("name", [*layouts()])
@pytest.mark.parametrize("parts", [False, True], ids=["whole", "in parts"])
def test_arrays_of_any_layout(name, parts):
    """They are drawn as they are read; what is masked is minus infinity, as a masked pair is."""
    given = layouts()[name]
    if "masked" in name:
        several = isinstance(given, list)
        expected = np.ma.stack(given) if several else given
        expected = np.where(np.ma.getmaskarray(expected), -np.inf, np.ma.getdata(expected))
    elif isinstance(given, torch.Tensor):
        expected = given.detach().to_dense().resolve_neg().tolist()
    else:
        expected = np.array(given, dtype=float)
    expected = np.array(expected, np.float32, order="C")
    shown = pk.matrix({"one": given, "other": given} if parts else given, TOKENS)
    found = numbers_in(shown.html()).reshape(1 + parts, *expected.shape)
    for each in found:
        np.testing.assert_array_equal(each, expected)


@pytest.mark.parametrize(
    ("pattern", "tokens", "said"),
    [
        (np.ones(3), "abc", r"Expected \[query, key\], \[head, query, key\] or .* got 3\."),
        (np.ones((2, 5, 3, 7, 7)), TOKENS, r"got 2 × 5 × 3 × 7 × 7: choose one text"),
        (np.ones((5, 7)), TOKENS, "as many queries as keys, got 5 and 7: give the rows of all"),
        (shares()[..., :5, :5], TOKENS, "as many tokens as there are keys, got 7 tokens and 5 key"),
        (shares(), [*range(SIDE)], "strings as 'tokens', got 0: give tokenizer.convert_ids"),
        (shares(), "the king", "list of strings as 'tokens', got 'the king': give tokenizer"),
        (np.where(np.eye(SIDE), np.nan, shares()), TOKENS,
         "got nan in 42 of 294 places of 'pattern', first at head 0, query 0, key 0"),
        (np.where(np.eye(SIDE) > 0, np.inf, 0), TOKENS, "got inf in 7 of 49 places"),
        (shares().astype(str).astype(object), TOKENS, "Expected numbers .* got array"),
        (pd.DataFrame([[1, None], [1, 1]], dtype="Int64"), TOKENS[:2], "Expected numbers .*<NA>"),
        (np.ma.masked_array(shares() * 1j, shares() > 0.5), TOKENS, "Expected numbers .* got mask"),
        (np.ones((0, 7, 7)), TOKENS, "at least one head and one token, got 0 × 7 × 7"),
        ([], [], "Expected .* got 0"),
        (np.ones((4100, 1, 1)) * np.ones((64, 64)), ["a"] * 64,
         r"at most 16,777,216 numbers, got 4100 × 64 × 64: choose fewer heads, as in p.*\[:8\]"),
        ([[1.0, 2.0], [3.0]], ["a", "b"], "Expected numbers .* got "),
        (torch.ones(2, 2, dtype=torch.complex64), ["a", "b"], "Expected numbers .* as 'pattern'"),
        ("attention", TOKENS, "Expected numbers .* got 'attention'"),
        (None, TOKENS, "Expected numbers .* got None"),
        ({}, TOKENS, "parts of one shape, got an empty dictionary"),
        ({"a": np.ones((7, 7)), "b": np.ones((3, 7, 7))}, TOKENS,
         r"parts of one shape, got 'a' \[7, 7\], 'b' \[3, 7, 7\]"),
    ],
)  # fmt: skip
def test_what_is_refused(pattern, tokens, said, unchecked):
    tokens = list(tokens) if tokens == "abc" else tokens
    with pytest.raises(BadRequest, match=said) as refused:
        pk.matrix(pattern, tokens)
    assert "\n" not in str(refused.value)


def test_names_and_files_that_are_refused(tmp_path, unchecked):
    with pytest.raises(BadRequest, match="as many names as there are heads, got 2 names and 3 h"):
        pk.matrix(shares()[0], TOKENS, names=["a", "b"])
    with pytest.raises(BadRequest, match="its folder does not exist"):
        pk.matrix(shares(), TOKENS).save(tmp_path / "nowhere" / "x.html")


@pytest.fixture
def opened(page: Page, tmp_path):
    """Write a page, and open it from the disk: it asks for nothing else."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.route(re.compile("^https?:"), lambda route: route.abort())
    file = tmp_path / "patterns.html"

    def open_it(pattern: object, tokens: list[str] = TOKENS, **more: object) -> Page:
        pk.matrix(pattern, tokens, **more).save(file)
        page.goto(file.as_uri())
        page.wait_for_selector("[data-drawn]")
        return page

    yield open_it
    assert {file.as_uri()} == set(asked)


def hover(page: Page, query: int, key: int, side: int = SIDE) -> str:
    """What the map says at a pair."""
    canvas = page.locator("canvas.lines")
    box = canvas.bounding_box()
    size = box["width"] / side
    canvas.hover(position={"x": (key + 0.5) * size, "y": (query + 0.5) * size})
    return page.locator(".attention .tip").inner_text()


def level(value: float, seen: np.ndarray, *, signed: bool) -> float:
    """How full a value is, by the published scale: the 99th percentile is full."""
    most = np.percentile(np.abs(seen), 99)
    top = float(f"{most:.2g}") if signed else min(1, np.ceil(100 * most) / 100)
    return min(abs(value) / top, 1) if signed else np.sqrt(min(value / top, 1))


@pytest.mark.browser
def test_scores_in_parts(opened):
    """Numbers under the pointer and pixels are those of the tensor, of each head and part."""
    parts = split()
    page = opened(parts)
    for part, name in (("sum", "L0H0"), ("content", "L1H2"), ("position", "L0H1")):
        page.get_by_role("button", name=part).click()
        page.locator(f"td[aria-label={name}]").click()
        expect(page.locator("h4")).to_have_text(name)
        layer, head = int(name[1]), int(name[3])
        values = parts[part][layer, head]
        every = np.stack([each[layer, head] for each in parts.values()])
        seen = every[np.isfinite(every)]
        for query in range(SIDE):
            for key in range(SIDE):
                said = hover(page, query, key)
                assert said.startswith(f"query {query} \u2018")
                assert f"→ key {key} \u2018" in said
                value = np.float32(values[query, key])
                number = said.rpartition(": ")[2]
                place = [(key + 0.3) / SIDE, (query + 0.3) / SIDE]
                red, green, blue, alpha = page.locator("canvas.map").evaluate(PIXEL, place)
                if np.isneginf(value):
                    assert ("masked", 0) == (number, alpha)
                    continue
                assert abs(float(number) - value) <= 0.50001 * 10 ** (
                    np.floor(np.log10(abs(value))) - 3
                )
                assert alpha == pytest.approx(20 + 235 * level(value, seen, signed=True), abs=2)
                ink = np.array(INK[int(np.sign(value))])
                assert np.abs(ink - (red, green, blue)).max() <= 1 + 160 / alpha  # premultiplied
    expect(page.locator(".attention .legend")).to_contain_text("or less (blue) to")


@pytest.mark.browser
def test_shares_of_attention(opened):
    """As on the page Text: small pictures, a query's row, a key's column, strange tokens."""
    pattern = shares()
    page = opened(pattern)
    future = np.triu_indices(SIDE, 1)
    seen = pattern[..., *np.tril_indices(SIDE)]
    for layer, head in ((0, 0), (0, 2), (1, 0)):
        cell = page.locator(f"td[aria-label=L{layer}H{head}]").bounding_box()
        canvas = page.locator(".patterns canvas")
        box = canvas.bounding_box()
        size = cell["width"] - 4
        for query, key in ((6, 0), (4, 3), (0, 0), (*(at[7] for at in future),)):
            x = cell["x"] - box["x"] + 2 + (key + 0.5) * size / SIDE
            y = cell["y"] - box["y"] + 2 + (query + 0.5) * size / SIDE
            alpha = canvas.evaluate(PIXEL, [x / box["width"], y / box["height"]])[3]
            full = level(pattern[layer, head, query, key], seen, signed=False)
            assert alpha == pytest.approx(255 * full, abs=3)
    assert hover(page, 2, 5).endswith(": 0")
    unseen, seen_least = (
        page.locator("canvas.map").evaluate(PIXEL, [(key + 0.5) / SIDE, 2.5 / SIDE])[3]
        for key in (5, 2)
    )
    assert unseen == 0 < 20 <= seen_least
    words = page.locator(".words [role=option]")
    words.nth(5).hover()
    strongest = [int(at) for at in np.argsort(-pattern[0, 0, 5, :6])[:4]]
    told = page.locator(".told").inner_text()
    assert strongest == [int(at) for at in re.findall("([0-9]) \u2018", told)][1:]
    page.get_by_role("button", name="incoming").click()
    words.nth(3).click()
    strongest = [3 + int(at) for at in np.argsort(-pattern[0, 0, 3:, 3])[:4]]
    page.mouse.move(0, 0)
    expect(page.locator(".told")).to_contain_text("gets most attention from")
    told = page.locator(".told").inner_text()
    assert strongest == [int(at) for at in re.findall("([0-9]) \u2018", told)][1:]
    assert "</script><b>" in page.locator(".words").inner_text()
    assert "\\u202e" in page.locator(".words").inner_text()


@pytest.mark.browser
def test_lines_between_tokens(opened):
    """A line's width and place are the weight and the pair; a key has the lines that come to it."""
    side = 5
    pattern = np.zeros((side, side))
    weights = {(0, 3): 0.2, (1, 4): 1.0, (2, 4): 0.3, (4, 1): 0.6}
    for pair, weight in weights.items():
        pattern[pair] = weight
    page = opened(pattern, list("abcde"))
    page.get_by_role("button", name="Lines").click()

    def ends(x: float) -> dict[int, int]:
        """How many pixels of lines are at each token at the left (0) or the right (1)."""
        column = np.array(page.locator("canvas.bundle").evaluate(EDGE, x))
        lines = [column[22 + 22 * at : 44 + 22 * at] for at in range(side)]
        return {at: int((line > 8).sum()) for at, line in enumerate(lines) if (line > 8).any()}

    queries = page.locator(".words .column").first.locator("[data-at]")
    keys = page.locator(".words .column").last.locator("[data-at]")
    thick = []
    for (query, key), weight in sorted(weights.items(), key=lambda pair: pair[1]):
        queries.nth(query).hover()
        assert [query] == [*ends(0)]
        assert [key] == [*ends(1)]
        thick.append(ends(1)[key])
        assert f"{weight:.0%}".replace("%", " %") in page.locator(".told").inner_text()
    assert sorted(thick) == thick
    assert thick[-1] > thick[0]
    keys.nth(4).hover()
    assert [1, 2] == [*ends(0)]
    page.mouse.move(0, 0)
    expect(page.locator(".told")).to_contain_text("4 \u2018e\u2019 attends most to 1 \u2018b\u2019")
    assert [0, 1, 2, 4] == [*ends(0)]  # at rest, all of them


@pytest.mark.browser
def test_many_heads_without_layers(opened):
    """Seventeen heads in two rows, each with its name; the last one can be reached by keys."""
    pattern = np.concatenate([shares().reshape(6, SIDE, SIDE)] * 3)[:17]
    page = opened(pattern, names=[f"head {at}" for at in range(17)])
    cells = page.locator(".patterns [role=gridcell]")
    expect(cells).to_have_count(17)
    cells.nth(0).press("Control+End")
    page.keyboard.press("Enter")
    expect(page.locator("h4")).to_have_text("head 16")
    expect(cells.nth(16)).to_have_text("head 16")
    assert abs(float(hover(page, 6, 2).rpartition(": ")[2]) - pattern[16, 6, 2]) < 1e-4


@pytest.mark.browser
def test_in_a_cell_of_a_notebook(page: Page, tmp_path):
    """Under a policy that forbids all requests, twice, and in the notebook's own colours."""
    file = tmp_path / "notebook.html"
    file.write_text(STRICT, encoding="utf-8")
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda said: trouble.append(said.text))
    page.goto(file.as_uri())
    shown = pk.matrix(shares(), TOKENS)
    page.evaluate(CELL, shown.html() + shown._repr_mimebundle_()["text/html"])
    expect(page.locator("[data-drawn]")).to_have_count(2)
    for paper, ink, scheme in (("#111", "#eee", "dark"), ("#fff", "#000", "light")):
        page.evaluate("style => { document.body.style = style }", f"background:{paper};color:{ink}")
        expect(page.locator("[data-drawn]").last).to_have_css("color-scheme", scheme)
    assert not trouble


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_and_wide(opened, page: Page, scheme):
    """Nothing is wider than the window, and text stands out from the paper."""
    page.emulate_media(color_scheme=scheme)
    opened(split(), names=None)
    page.get_by_role("button", name="Lines").click()
    for width in (390, 1024, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
    colours = page.locator(".told").evaluate(
        "node => [getComputedStyle(node).color, getComputedStyle(document.body).backgroundColor]"
    )
    ink, paper = (np.mean([*map(int, re.findall(r"\d+", each))][:3]) for each in colours)
    assert (ink > 200 and paper < 50) if scheme == "dark" else (ink < 50 and paper > 200)
