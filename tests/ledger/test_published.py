"""Published figures as data: those we carry, and files of one's own."""

import json
import math

import numpy as np
import pytest

from pages.methods.page import offered_names
from poskernel_core import analyses
from poskernel_core.common.errors import BadRequest
from poskernel_core.ledger import published
from poskernel_core.ledger.reproduce import request_for

TOY = "NeelNanda/Attn_Only_2L512W_C4_Code"


@pytest.fixture(scope="module")
def shared_figures(shared_dir):
    return json.loads((shared_dir / "published-figures.json").read_text())


def by_id(name):
    return next(each for each in published.read_figures() if each.id == name)


def test_every_figure_can_be_asked_for():
    for figure in published.read_figures():
        question = analyses.find(figure.question)
        question.params(**figure.params)
        assert figure.question == request_for(figure, "demo-attn-2l").analysis
        assert figure.source
        assert figure.models
        assert figure.value in {value.name for value in question.values}
        assert not figure.heads or isinstance(figure.published, tuple)


def test_names_that_the_ledger_offers():
    rest = ["attn-only-2l", "distilgpt2"]
    for model, own, offered in (
        ("gpt2", "gpt2", ["gpt2", *rest]),
        ("demo-gpt2", "demo-gpt2", ["demo-gpt2", *rest, "gpt2"]),
        ("part", "gpt2", ["part", "gpt2", *rest]),
        ("part", "openai-community/gpt2", ["part", "openai-community/gpt2", *rest]),
        ("part", "some/other", ["part", "some/other", *rest, "gpt2"]),
    ):
        assert offered == offered_names(model, own)


def test_models():
    assert ["attn-only-2l", "distilgpt2", "gpt2"] == published.known_models()
    assert published.figures_of(TOY) == published.figures_of("attn-only-2l")
    assert () == published.figures_of("demo-gpt2")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("recency-B", ("seed5_fig1_prob_vs_second_A_pos", "p([B])")),
        ("recency-C", ("seed5_fig1_prob_vs_second_A_pos", "p([C])")),
        ("intrinsic-7", ("seed5_fig4_L1H6_row7_of_48_random", "0")),
        ("intrinsic-48", ("seed5_fig5_L1H6_last_row_48_random", "0")),
        ("intrinsic-tokens-only",
         ("seed5_fig6_L1H6_last_row_50_random_token_only_only_L0H1", "0")),
        ("parts-scores-L0H3-both", ("seed4_fig2_L0H3_scores_q8", "Total")),
        ("parts-scores-L0H3-position-only", ("seed4_fig2_L0H3_scores_q8", "Position-only")),
        ("parts-pattern-L0H3-token-only", ("seed4_fig3_L0H3_pattern_q8", "Token-only")),
        ("parts-scores-L0H0-position-only", ("seed4_fig7_L0H0_scores_q8", "Position-only")),
        ("parts-pattern-L0H0-both", ("seed4_fig8_L0H0_pattern_q8", "Total")),
        ("zero-row-1", ("seed4_fig5_induction_last_row", "[A] at position 1")),
        ("zero-row-0", ("seed4_fig5_induction_last_row", "[A] at position 0")),
        ("zero-probability-1", ("seed4_probs", "A_at_1_with_BOS")),
        ("zero-probability-0", ("seed4_probs", "A_at_0_no_BOS")),
    ],
)  # fmt: skip
def test_carried_over_exactly(shared_figures, name, place):
    theirs = shared_figures[place[0]][place[1]]
    ours = by_id(name).published
    if not isinstance(theirs, list):
        theirs, ours = [theirs], [ours]

    assert len(theirs) == len(ours)
    for a, b in zip(theirs, ours, strict=True):
        assert a is b is None or a == pytest.approx(b, rel=1e-4)


def test_rows_by_position(shared_figures):
    theirs = shared_figures["seed5_fig3_L1H6_last_row_by_second_A_pos"]

    for position, row in zip(range(4, 11), by_id("recency-rows").published, strict=True):
        assert theirs[str(position)] == pytest.approx(row, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "corner", "largest"),
    [
        ("previous", [[0.039, 0, 0.031], [0.189, 0.172, 0.068], [0.157, 0.021, 0.482]], (4, 11)),
        ("duplicate", [[0.003, 0.132, 0.005], [0, 0, 0.002], [0.002, 0.009, 0]], (0, 5)),
        ("induction", [[0.004, 0, 0.004], [0.001, 0, 0.002], [0.002, 0.009, 0.002]], (5, 1)),
    ],
)
def test_heat_maps_are_layer_by_head(name, corner, largest):
    """The notebook also prints the corner of each map, to three decimals."""
    table = np.array(by_id(f"heatmap-{name}").published)

    assert (12, 12) == table.shape
    assert largest == np.unravel_index(table.argmax(), table.shape)
    np.testing.assert_allclose(table[:3, :3], corner, atol=6e-4)


GOOD = {
    "id": "a", "models": ["m"], "figure": "f", "source": "s", "question": "etc", "value": "etc",
    "published": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "Expected a JSON list of published figures"),
        ("{}", "it holds something else"),
        (json.dumps([{**GOOD, "published": {}}]), "figure 0: .*'published.str'"),
        (
            json.dumps([{k: v for k, v in GOOD.items() if k != "source"}]),
            "figure 0: 'figure' needs 'source'",
        ),
        (json.dumps([{**GOOD, "colour": 1}]), "figure 0: .*'colour' of 'figure': there is no such"),
        (json.dumps([GOOD, GOOD]), "names 'a' twice"),
        (json.dumps([{**GOOD, "absolute": -1}]), "'absolute' of 'figure'"),
        (
            json.dumps([{**GOOD, "relative": math.inf}]),
            "'relative' of 'figure': input should be a finite",
        ),
        (json.dumps([{**GOOD, "published": None}]), "figure 0: No number is published"),
        (json.dumps([{**GOOD, "published": []}]), "No number is published"),
        (json.dumps([{**GOOD, "published": [None, None]}]), "No number is published"),
        (json.dumps([{**GOOD, "published": [1.0, math.nan]}]), "Published numbers are finite"),
        (json.dumps([{**GOOD, "published": [[1.0, 2.0], [3.0]]}]), "Expected rows of one length"),
        (json.dumps([{**GOOD, "heads": ["L0H0", "L0H1"]}]), "one published number for each"),
        (json.dumps([{**GOOD, "heads": ["L0H0"], "published": [1.0, 2.0]}]), "for each of the"),
        (json.dumps([{**GOOD, "reading": "largest head"}]), "The largest head is a name"),
    ],
)
def test_files_of_another_form(tmp_path, text, words):
    file = tmp_path / "mine.json"
    file.write_text(text)

    with pytest.raises(BadRequest, match=words) as caught:
        published.read_figures(file)
    assert "mine.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_such_file(tmp_path):
    with pytest.raises(BadRequest, match="Cannot read"):
        published.read_figures(tmp_path / "none.json")
