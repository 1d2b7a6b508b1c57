"""Edges between heads: by plain transformers and hooks, and where they are known."""

import re

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from transformers import GPT2LMHeadModel

import poskernel_core as pk
from poskernel_core.analyses.circuits.spec import EMBEDDINGS, INPUTS, Edges, Faithfulness
from poskernel_core.common.heads import parse_cell
from poskernel_core.engine.engine import describe_run
from tests.support import oracles
from tests.support.builders import induction
from tests.support.builders.made import gpt2_config, randomise, save
from tests.support.circuits import Fed, goes_on, induction_rows, random_rows, subject_of, table
from tests.support.passes import loaded
from tests.support.raw import of_all_texts
from tests.support.refusals import refused

WINDOW = np.zeros((1, 5), dtype=np.int64)


def perform(path, rows, more=None, model=None, **params):
    subject = subject_of(model or loaded(path), WINDOW, **(more or {}))
    asked = Edges.params(pairs=table(rows), **params)
    return Edges().perform(subject, {}, asked, lambda done, total: None)


NEAR = {"abs": 1e-8, "rel": 0}
WAYS = {"gpt2": "clean-into-changed", "llama": "changed-into-clean"}


@pytest.mark.parametrize("name", WAYS)
def test_against_plain_transformers(model_dirs, wide, name):
    """Edges, all senders together, estimates and errors; Llama's heads share keys and values."""
    path, way = model_dirs[name], WAYS[name]
    rows, plain = random_rows(path, count=7), Fed(path)
    model = wide(path)
    found = of_all_texts(perform(path, rows, {"batch": 5}, model, head="L2H1", direction=way))
    guessed = of_all_texts(perform(path, rows, None, model, receivers=64, direction=way))
    senders, into = found.words("sender"), (2, 1)
    assert senders[0] == EMBEDDINGS
    assert senders[-1] == "MLP 1"
    assert len(senders) == 1 + 2 * (plain.count + 1)

    pairs = [(row[:2] if way.startswith("changed") else row[1::-1], row[2:4]) for row in rows]
    apart = np.array(
        [plain.margin(both[1], ids) - plain.margin(both[0], ids) for both, ids in pairs]
    )
    group = np.arange(7)
    for side, sender in [(0, EMBEDDINGS), (1, EMBEDDINGS), (2, EMBEDDINGS), (0, "L0H1"),
                         (1, "L0H1"), (2, "L0H1"), (1, "L1H3"), (2, "L1H0"), (0, "MLP 0"),
                         (2, "MLP 1")]:  # fmt: skip
        moved = np.array([plain.edge(*both, ids, into, side, sender) for both, ids in pairs])
        at = 0, side, senders.index(sender)
        assert moved.sum() / apart.sum() == pytest.approx(found.values["edge"][at], **NEAR)
        error = oracles.jackknife(
            7, lambda kept, moved=moved: moved[kept].sum() / apart[kept].sum()
        )
        assert error == pytest.approx(found.errors["edge"][at], **NEAR)
        slope = np.array([plain.slope(*both, ids, into, side, sender) for both, ids in pairs])
        expected = slope.sum() / apart.sum()
        assert expected == pytest.approx(found.values["estimate"][at], abs=1e-6)
        place = guessed.words("receiver").index("L2H1")
        assert expected == pytest.approx(guessed.values["estimate"][place, *at[1:]], abs=1e-6)
    for side in range(3):
        moved = sum(plain.edge(*both, ids, into, side, None) for both, ids in pairs)
        whole = found.values["whole"][0, side]
        assert moved / apart.sum() == pytest.approx(whole, **NEAR)
        rest = whole - found.values["edge"][0, side].sum()
        assert rest == pytest.approx(found.values["nonlinear"][0, side], abs=1e-9)
    assert group.size == found.values["pairs"]
    pairs = found.values["estimate"].ravel(), found.values["edge"].ravel()
    assert spearmanr(*pairs).statistic == pytest.approx(float(found.values["agreement"]))


def test_only_earlier_parts_feed_a_head(model_dirs):
    """Edges from a receiver's own layer, or later ones, do not exist."""
    path = model_dirs["gpt2"]
    found = perform(path, random_rows(path, count=7), receivers=64)
    assert 15 == len(found.words("receiver"))
    assert np.isnan(found.values["edge"]).all()
    for row, name in enumerate(found.words("receiver")):
        layer = parse_cell(name, 3, 5)[0]
        known = np.isfinite(found.values["estimate"][row])
        assert (known.sum(axis=1) == 1 + 6 * layer).all()
        assert known[:, : 1 + 6 * layer].all()


@pytest.mark.parametrize("head", ["L2H1", ""])
def test_it_forms(model_dirs, head):
    """Answers are those of the pairs read so far, with errors over their groups."""
    path, seen = model_dirs["gpt2"], []
    rows = random_rows(path, lengths=(7,))
    more = {"form": lambda done, part: seen.append((done, part)), "batch": 4}
    whole = perform(path, rows, more, head=head, receivers=15)
    done = [count for count, _ in seen]
    assert done == ([3, 4, 6, 7, 8, 10, 11, 12] if head else [4, 8, 12])
    for count, part in (seen[0], seen[-1]):
        alone = perform(path, rows[:count], head=head, receivers=15)
        for name, value in alone.values.items():
            np.testing.assert_allclose(part.values[name], value, atol=2e-5, err_msg=name)
            if name in alone.errors:
                np.testing.assert_allclose(part.errors[name], alone.errors[name], atol=2e-5)
        assert (count, min(count, 10)) == tuple(part.provenance[n] for n in ("windows", "groups"))
    assert 13 == whole.provenance["windows"] == whole.values["pairs"]


@pytest.mark.parametrize("head", ["L2H1", ""])
def test_it_goes_on(model_dirs, head):
    path = model_dirs["gpt2"]
    rows = random_rows(path)
    goes_on(lambda more: perform(path, rows, more | {"batch": 3}, head=head))


def test_an_induction_circuit(tmp_path):
    """The previous-token head feeds the induction head by its key, and nothing else does."""
    path = induction(tmp_path / "induction", height=12.0, gain=4.0)
    for way in WAYS.values():
        found = perform(path, induction_rows(), head="L1H0", direction=way)
        edge = found.values["edge"][0].copy()
        at = INPUTS.index("key"), found.words("sender").index("L0H0")
        assert 1 == pytest.approx(edge[at], abs=1e-3)
        edge[at] = 0
        np.testing.assert_allclose(edge, 0, atol=1e-4)
        np.testing.assert_allclose(found.values["whole"][0], [0, 1, 0], atol=1e-3)


def test_edges_add_up_in_a_linear_model(tmp_path):
    """Norms with a fixed scale, heads that look at all alike, MLPs without a bend: no rest."""
    size = 1e5
    config = gpt2_config(17, layer_norm_epsilon=size**2, activation_function="linear")
    model = GPT2LMHeadModel(config)
    randomise(model, 7)
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.weight[:, :70] = 0
        for name, parameter in model.named_parameters():
            if ".ln_" in name and name.endswith("weight"):
                parameter *= size
    path = save(model, tmp_path / "linear", 17)
    found = perform(path, random_rows(path, count=7), head="L2H3")
    whole, edge = found.values["whole"][0], found.values["edge"][0]
    assert abs(whole[2]) > 0.01
    assert (np.abs(edge[2]) > 1e-3).sum() > 5
    np.testing.assert_allclose(edge.sum(axis=1), whole, atol=1e-5)
    np.testing.assert_allclose(found.values["estimate"][0], edge, atol=1e-5)
    np.testing.assert_allclose(whole[:2], 0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "head"), [("demo-gpt2", "L3H7"), ("demo-rotary", "L3H0")])
def test_estimates_rank_as_exact_edges_do(engine, near_workers, name, head):
    """On random tokens twice, those of 0.005 or more; where attention bends more, they need not."""
    params = {"maker": "copying", "count": 20, "head": head}
    found = pk.show("edges", name, context=64, engine=engine, params=params).values
    edge, estimate = (found[each].ravel() for each in ("edge", "estimate"))
    large = np.abs(edge) >= 0.005
    assert large.sum() >= 3
    assert spearmanr(edge[large], estimate[large]).statistic >= 0.9
    assert np.corrcoef(edge[np.isfinite(edge)], estimate[np.isfinite(edge)])[0, 1] >= 0.9


def test_bad_input(model_dirs):
    path = model_dirs["gpt2"]
    with refused("L7H1"):
        perform(path, random_rows(path, count=4), head="L7H1")


@pytest.mark.parametrize("question", [Edges, Faithfulness])
def test_what_would_fit_is_said(question):
    """The size grows with pairs; what it says would fit is about as large as what is allowed."""
    run = describe_run("demo-gpt2", context=64)
    many = question.params(maker="copying", count=1000)
    asked = question()
    allowed = asked.tokens(run, many) // 4
    of, way = asked.smaller(run, many, allowed)
    fit = int(re.search(r"up to ([\d,]+) of 1,000 pairs", way)[1].replace(",", ""))
    assert asked.tokens(run, many.model_copy(update={"count": fit})) == pytest.approx(
        allowed, rel=0.1
    )
    assert of == "pairs times runs times length"


def test_what_a_set_does_not_use_is_not_in_its_key():
    run = describe_run("demo-gpt2", context=64)
    made = Edges.params(maker="copying", skip_bad=True)
    assert Edges.params(maker="copying") == Edges().completed(run, made)
    rows = table(induction_rows(3))
    assert Edges.params(pairs=rows) == Edges().completed(run, Edges.params(pairs=rows, count=77))
