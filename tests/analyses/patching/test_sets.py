"""Patching over a set of pairs: by plain hooks, where it is known, and what is left out of it."""

import math
from functools import partial

import numpy as np
import pytest
import torch

import poskernel_core as pk
from poskernel_core.analyses.patching import experiment, spec
from poskernel_core.analyses.patching.spec import PARTS, PatchHeads, PatchPositions
from poskernel_core.common import specs
from poskernel_core.common.errors import Cancelled, TooLarge
from poskernel_core.common.jackknife import interval
from poskernel_core.common.settings import settings
from poskernel_core.common.specs import CorpusSpec, ModelSpec, Request, RunSpec
from poskernel_core.engine.admission import check_plan
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.storage.store import Store
from serving.asked import typed
from tests.analyses.patching.test_patching import (
    LONG,
    WAYS,
    built,  # noqa: F401
    perform,
    quiet,
    subject_of,
    written,
)
from tests.support.builders import START, hf_eager_model
from tests.support.circuits import goes_on
from tests.support.passes import loaded
from tests.support.refusals import refused

PRIMES = [41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97]


def row(clean, changed, answers, template=""):
    clean, changed = (
        written(each) if isinstance(each, list) else each for each in (clean, changed)
    )
    return {"clean": clean, "changed": changed, "answer": str(answers[0]),
            "other_answer": str(answers[1]), "template": template}  # fmt: skip


def of_set(question, model, rows, progress=quiet, more=None, **params):
    asked = question.params(pairs=rows, **params)
    return question().perform(subject_of(model, "", **(more or {})), {}, asked, progress)


ROWS = [
    row([*LONG[:at], PRIMES[at], *LONG[at + 1 : end]], [*LONG[:end]], (29 + at, 37 + end))
    for at, end in ((1, 7), (2, 7), (4, 11), (0, 7), (6, 11), (3, 7), (5, 11))
]
"""Seven pairs of two lengths."""


@pytest.fixture
def any_pair(monkeypatch):
    """Tiny models prefer nothing clearly: every pair counts that differs at all."""
    monkeypatch.setattr(experiment, "LEAST", -math.inf)
    monkeypatch.setattr(spec, "CLEAR", -math.inf)


def hooked(model, kind, ids, layer=None, change=None):
    """The last logits of plain transformers, and what goes into each output projection.

    ``change`` of what goes into that of one layer, ``[pos, head * d]``, comes before.
    """
    if kind == "gpt2":
        projections = [block.attn.c_proj for block in model.transformer.h]
    else:
        projections = [block.self_attn.o_proj for block in model.model.layers]
    seen = {}

    def before(at, module, inputs):
        x = inputs[0]
        if at == layer:
            x = x.clone()
            change(x[0])
        seen[at] = x[0].clone()
        return (x, *inputs[1:])

    hooks = [each.register_forward_pre_hook(partial(before, at))
             for at, each in enumerate(projections)]  # fmt: skip
    with torch.no_grad():
        logits = model(torch.tensor([[START, *ids]])).logits[0, -1]
    for hook in hooks:
        hook.remove()
    return logits, seen


def by_hooks(model, kind, rows, way, heads):
    """The clean and changed metrics of each pair, and how far each head moves that of the run."""
    found, ends = [], []
    for each in rows:
        one, two = int(each["answer"]), int(each["other_answer"])
        prompts = [[*map(int, each[name].split())] for name in ("clean", "changed")]
        runs = [hooked(model, kind, ids) for ids in prompts]
        ends.append([float(logits[one] - logits[two]) for logits, _ in runs])
        base = 1 if way == WAYS[0] else 0
        (_, own), (_, other) = runs[base], runs[1 - base]
        moved = np.empty((len(own), heads))
        for layer, head in np.ndindex(moved.shape):
            width = own[layer].shape[1] // heads
            some = slice(head * width, (head + 1) * width)

            def change(x, some=some, layer=layer, other=other):
                x[:, some] = other[layer][:, some]

            logits, _ = hooked(model, kind, prompts[base], layer, change)
            moved[layer, head] = float(logits[one] - logits[two]) - ends[-1][base]
        found.append(moved)
    return np.array(found), np.array(ends)


def ratio(moved, of, without=()):
    """A ratio of sums, in a loop."""
    above, below = 0, 0
    for place in range(len(of)):
        if place not in without:
            above, below = above + moved[place], below + of[place]
    return above / below


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("way", WAYS)
def test_all_heads_against_plain_hooks(model_dirs, any_pair, kind, way):
    """Exact effects, their errors and biases; learned and rotary positions, grouped heads."""
    model = loaded(model_dirs[kind])
    found = of_set(PatchHeads, model, ROWS, direction=way, exact="all")
    plain, heads = hf_eager_model(model_dirs[kind]), model.geometry.n_heads
    moved, ends = by_hooks(plain, kind, ROWS, way, heads)
    of = (ends[:, 0] - ends[:, 1]) * (1 if way == WAYS[0] else -1)
    scale = abs(of.sum()) / np.abs(of).sum()  # signs differ here: sums are small beside their parts
    near = partial(np.testing.assert_allclose, atol=1e-4 / scale)
    near(found.plug_ins["effect"], ratio(moved, of))
    without = np.array([ratio(moved, of, [place]) for place in range(7)])
    near(
        found.errors["effect"],
        np.sqrt(6 / 7 * ((without - without.mean(0)) ** 2).sum(0)),
        rtol=0.01,
    )
    near(found.biases["effect"], 6 * (without.mean(0) - ratio(moved, of)), rtol=0.01)
    for name, place in (("clean_metric", 0), ("changed_metric", 1)):
        assert ends[:, place].mean() == pytest.approx(float(found.values[name]), abs=1e-4)
    opposite = np.mean(moved / of[:, None, None] <= -0.05, axis=0)
    np.testing.assert_allclose(found.plug_ins["opposite"], opposite)


def test_counts_and_means_are_those_of_the_pairs(model_dirs, any_pair):
    """They have no bias, also where groups of pairs differ in size; ratios are corrected."""
    rows = [each | {"template": "x" * (at in (1, 4, 5))} for at, each in enumerate(ROWS)]
    heads = of_set(PatchHeads, loaded(model_dirs["gpt2"]), rows, exact="all")
    for name in ("opposite", "clean_metric", "changed_metric", "difference"):
        assert heads.biases[name].any()
        np.testing.assert_array_equal(heads.values[name], heads.plug_ins[name])
    pairs = 7 * heads.values["opposite"]
    np.testing.assert_allclose(pairs, pairs.round(), atol=1e-12)
    assert {*pairs.round().ravel()} - {0, 7}
    assert (heads.values["effect"] != heads.plug_ins["effect"]).any()


@pytest.mark.parametrize("part", PARTS)
def test_a_set_of_one_pair(model_dirs, any_pair, part):
    """It is that pair, without errors; batches and the order of pairs change nothing."""
    model, rows = loaded(model_dirs["llama"]), ROWS[2:3]
    one = perform(PatchHeads, model, rows[0]["clean"], rows[0]["changed"], what=part,
                  answer=rows[0]["answer"], other_answer=rows[0]["other_answer"])  # fmt: skip
    alone = of_set(PatchHeads, model, rows, what=part, exact="all")
    for name in ("effect", "attribution", "clean_metric", "changed_metric"):
        np.testing.assert_allclose(alone.values[name], one.values[name], atol=2e-4, err_msg=name)
    assert not np.isfinite(alone.errors["effect"]).any()
    several = of_set(PatchHeads, model, ROWS, what=part, exact="all")
    cut = of_set(PatchHeads, model, ROWS[::-1], what=part, exact="all", more={"batch": 3})
    for name in ("effect", "attribution", "opposite"):
        np.testing.assert_allclose(several.plug_ins[name], cut.plug_ins[name], atol=2e-3)


@pytest.mark.parametrize("what", PARTS)
def test_swapped_prompts_swap_directions(model_dirs, any_pair, what):
    """Put the clean prompts of swapped pairs into the changed ones: the other direction."""
    model = loaded(model_dirs["gpt2"])
    swapped = [row(each["changed"], each["clean"], (each["other_answer"], each["answer"]))
               for each in ROWS]  # fmt: skip
    given = {"what": what, "head": "L1H1"}
    one = of_set(PatchPositions, model, ROWS, direction=WAYS[0], **given)
    two = of_set(PatchPositions, model, swapped, direction=WAYS[1], **given)
    for name in ("part_effect", "span_effect", "span_attribution"):
        np.testing.assert_allclose(one.plug_ins[name], two.plug_ins[name], rtol=0.01, atol=1e-3)
    np.testing.assert_allclose(one.values["pair_effect"], two.values["pair_effect"], atol=1e-5)


INDUCTION = [(31, 67), (37, 71), (41, 73)]
"""What follows the key: of A B . . C D A the head finds B; it ends with C, or D follows A."""


def induction_rows(decides, swapped=()):
    rows = []
    for one, two in INDUCTION * 4:
        clean = [19, one, 43 + len(rows), 47, 53, two, 19]
        changed = [*clean[:-1], 53] if decides == "pattern" else [19, two, *clean[2:5], one, 19]
        answers = (two, one) if len(rows) in swapped else (one, two)
        rows.append(row(clean, changed, answers))
    return rows


@pytest.mark.parametrize("decides", ["pattern", "values"])
def test_an_induction_model(built, decides):  # noqa: F811
    """One head carries everything, in every pair, by one of its parts, at known positions."""
    rows = induction_rows(decides)
    for way in WAYS:
        heads = of_set(PatchHeads, built, rows, direction=way, exact="all")
        expected = np.zeros_like(heads.values["effect"])
        expected[1, 0] = 1
        np.testing.assert_allclose(heads.values["effect"], expected, atol=5e-3)
        assert (heads.errors["effect"] < 5e-3).all()
        np.testing.assert_array_equal(heads.values["opposite"], 0)
        assert (12, 0) == tuple(int(heads.values[name]) for name in ("pairs", "left_out"))
        given = {"head": "L1H0", "direction": way, "what": decides}
        one = of_set(PatchPositions, built, rows, **given)
        parts = dict(zip(one.words("part"), one.values["part_effect"], strict=True))
        assert parts["output"] == pytest.approx(1, abs=5e-3)
        assert parts[decides] == pytest.approx(1, abs=0.02)
        places = [7] if decides == "pattern" else [2, 6]
        effect = one.values["span_effect"]
        assert effect[places].sum() == pytest.approx(1, abs=0.05)
        np.testing.assert_allclose(np.delete(effect, places), 0, atol=0.01)
        share = one.values["pair_effect"] / one.values["pair_difference"]
        np.testing.assert_allclose(share, 1, atol=0.02)
        assert 12 == len(one.words("pair"))


def test_spans_of_pairs_of_several_lengths(built):  # noqa: F811
    """What is said of spans is known: the value found moves to another place in each pair."""
    rows = []
    for at, filler in enumerate(([47], [47, 59], [47, 59, 61], [83, 89])):
        begin = [101 + at, *filler]
        texts = [
            written(begin) + f" 19 {{first:{one}}} 43 53 {{second:{two}}} 97 {{key:19}}"
            for one, two in ((31, 67), (67, 31))
        ]
        rows.append(row(*texts, (31, 67)))
    found = of_set(PatchPositions, built, rows, head="L1H0", what="values")
    spans = dict(zip(found.words("span"), found.values["span_effect"], strict=True))
    assert ["first", "second", "key", "end"] == [*spans]
    assert (spans["first"], spans["second"]) == pytest.approx((1, 0), abs=0.01)
    assert (spans["key"], spans["end"]) == pytest.approx((0, 0), abs=0.01)


@pytest.mark.parametrize("way", WAYS)
def test_spans_that_stand_elsewhere(built, way):  # noqa: F811
    """A span that moves between the prompts brings what is found at it, from where it is."""
    rows = []
    for filler in map(written, ([47], [47, 59], [83, 89], [101])):
        clean = f"{filler} 19 {{who:31}} 53 67 {{key:19}}"
        rows.append(row(clean, f"19 {{who:67}} {filler} 53 31 {{key:19}}", (31, 67)))
    found = of_set(PatchPositions, built, rows, head="L1H0", what="values", direction=way)
    assert ["who", "key", "end"] == found.words("span")
    np.testing.assert_allclose(found.values["span_effect"], [1, 0, 0], atol=0.02)


def test_pairs_without_the_behaviour_are_left_out(built):  # noqa: F811
    """Three of twelve have their answers the wrong way round."""
    rows = induction_rows("pattern", swapped=(0, 5, 7))
    found = of_set(PatchHeads, built, rows)
    assert (9, 3) == tuple(int(found.values[name]) for name in ("pairs", "left_out"))
    assert (9, 9) == (found.provenance["windows"], found.provenance["groups"])
    bad = of_set(PatchHeads, built, [*rows, row([7], [7], (3, 5))], skip_bad=True)
    assert (9, 3, 1) == tuple(int(bad.values[name]) for name in ("pairs", "left_out", "bad_rows"))
    kept = [each for at, each in enumerate(rows) if at not in (0, 5, 7)]
    alone = of_set(PatchHeads, built, kept)
    np.testing.assert_array_equal(alone.values["effect"], found.values["effect"])
    with refused("prefers its answer by 0.1 nats more than the changed one, got 0 such of 3 pairs"):
        of_set(PatchHeads, built, [rows[at] for at in (0, 5, 7)])
    with refused("judged at the end of its prompts, not by their loss"):
        PatchHeads().with_params(describe_run("demo-gpt2"), PatchHeads.params(
            maker="order", metric="loss"))  # fmt: skip


def by_hand(samples, question=PatchHeads, **more):
    """The answer to made numbers of four pairs of two templates and one without."""
    rows = [row([7, n], [11, n], (3, 5), template) for n, template in enumerate("aabb", 13)]
    some = experiment.PairSet(subject_of(more.pop("model"), ""), question.params(pairs=rows))
    some.metrics[:] = more.pop("metrics")
    return some.answer(question, samples, {}, {})


def test_by_hand(model_dirs, monkeypatch):
    """Pairs of one template are left out together.

    Sums are 1 + 3 of 2 + 2 and 2 + 0 of 4 + 2: 6 of 10; without either template 2 / 6 and 4 / 4.
    """
    moved = np.array([1.0, 3, 2, 0])[:, None, None]
    made = {"model": loaded(model_dirs["gpt2"]), "metrics": [[2.0, 1, 3, 1], [0, -1, -1, -1]]}
    samples = {"effect": (moved, np.array([2.0, 2, 4, 2]))}
    with monkeypatch.context() as clear:
        clear.setattr(spec, "CLEAR", -math.inf)
        found = by_hand(samples, **made)
    means = [float(found.values[f"{each}"]) for each in ("clean_metric", "changed_metric")]
    assert [1.75, -0.75] == means
    without = np.array([2 / 6, 4 / 4])
    assert 0.6 == pytest.approx(found.plug_ins["effect"].item())
    assert without.std() == pytest.approx(found.errors["effect"].item())
    assert without.mean() - 0.6 == pytest.approx(found.biases["effect"].item())
    assert (2, "pairs of prompts") == (found.provenance["groups"], found.error_counts)
    # the mean differences of the templates are 2 and 3: 2.5 with an error of 0.5
    assert 2.5 - interval(2) * 0.5 == pytest.approx(float(found.lows["difference"]))
    # which is not clearly above 0.5, so that no share is told
    assert np.isnan(by_hand(samples, **made).values["effect"]).all()


def test_it_forms_and_can_be_cancelled(built):  # noqa: F811
    """First estimates of more and more pairs, then exact effects of the largest heads."""
    seen, rows = [], induction_rows("pattern")
    more = {"form": lambda done, part: seen.append((done, part)), "batch": 5}
    whole = of_set(PatchHeads, built, rows, more=more)
    assert [1, 2, 3, 4, 5, 6] == [done for done, _ in seen]
    used = [int(part.values["pairs"]) for _, part in seen]
    assert [5, 10, 12, 12, 12, 12] == used
    for done, part in seen:
        assert np.isfinite(part.values["attribution"]).all()
        assert np.isnan(part.values["effect"]).all() == (done <= 3)
        if done > 3:  # of the pairs so far
            assert part.values["effect"][1, 0] == pytest.approx(1, abs=5e-3)
    for part, array in (("values", whole.values), ("errors", whole.errors)):
        np.testing.assert_array_equal(getattr(seen[-1][1], part)["effect"], array["effect"])
    heads = whole.values["effect"].size
    assert min(heads, spec.LARGEST) == np.isfinite(whole.values["effect"]).sum()

    def cancel(done, total):
        if done == 4:
            raise Cancelled("Cancelled.")

    with pytest.raises(Cancelled):
        of_set(PatchHeads, built, rows, progress=cancel, more={"batch": 5})


def test_positions_form(built):  # noqa: F811
    """Answers of the pairs so far; the last is the whole one."""
    seen, rows = [], induction_rows("pattern")
    more = {"form": lambda done, part: seen.append((done, part)), "batch": 5}
    whole = of_set(PatchPositions, built, rows, more=more, head="L1H0")
    assert [1, 2, 3] == [done for done, _ in seen]
    assert [5, 10, 12] == [int(part.values["pairs"]) for _, part in seen]
    for _, part in seen:
        assert part.values["part_effect"][0] == pytest.approx(1, abs=5e-3)
        assert part.values["pairs"] == part.provenance["windows"] == len(part.words("pair"))
    np.testing.assert_array_equal(seen[-1][1].values["span_effect"], whole.values["span_effect"])


@pytest.mark.parametrize("question", [PatchHeads, PatchPositions])
def test_it_goes_on(built, question):  # noqa: F811
    rows = induction_rows("pattern")
    head = {"head": "L1H0"} if question is PatchPositions else {"exact": "all"}
    goes_on(lambda more: of_set(question, built, rows, more=more | {"batch": 3}, **head))


def test_the_largest_estimates_are_exact(engine, near_workers):
    """Of the demo model's heads, ten; over random tokens repeated, three carry most."""
    asked = {"maker": "copying", "count": 20}
    ask = partial(pk.show, "patch-heads", "demo-gpt2", context=64, engine=engine)
    largest, every = (ask(params=asked | more) for more in ({}, {"exact": "all"}))
    exact = np.isfinite(largest.values["effect"])
    assert 10 == exact.sum()
    size = np.abs(every.plug_ins["attribution"])
    assert size[exact].min() >= size[~exact].max()
    np.testing.assert_allclose(
        largest.values["effect"][exact], every.values["effect"][exact], atol=1e-4
    )
    ranks = [every.plug_ins[name].ravel().argsort().argsort() for name in ("effect", "attribution")]
    assert np.corrcoef(*ranks)[0, 1] == pytest.approx(float(every.values["agreement"]), abs=0.01)
    told = every.values["effect"]
    assert [(3, 7), (3, 5), (3, 4)] == [
        np.unravel_index(at, told.shape) for at in np.argsort(-told, axis=None)[:3]
    ]


MODEL = ModelSpec(name="gpt2", fingerprint="abc")
RUN = RunSpec(
    model=MODEL, corpus=CorpusSpec(name="sample", fingerprint="d"), context=41, positions=(3, 11)
)
ONE = {"clean": "a b", "changed": "a c", "answer": " b"}
KEYS = {
    ("patch-heads", ()): "d1728400efc6266a52ee380f16f9bd6f83426534df7855b74ac92d901b8c285f",
    ("patch-heads", (("what", "values"), ("metric", "loss"))):
        "12328b8c864f1be02b16452a7bb922bce21cae812c1574b91ce3b0960181e7c3",
    ("patch-positions", (("head", "L0H1"),)):
        "b2e355cd33504310ae9cbc3c709431a40c7f2821c5345ddbac6eb6e5707f2942",
}  # fmt: skip


def key(name="patch-heads", run=RUN, **params):
    return make_plan(Request(analysis=name, run=run, params=params)).key.split("-")[-1]


@pytest.mark.parametrize("asked", KEYS)
def test_keys_of_one_pair_are_what_they_were(asked, monkeypatch):
    """What is of sets alone is no part of them: in the wording of when there were none."""
    monkeypatch.setattr(specs, "WORDING", 4)
    name, more = asked
    params = ONE | dict(more)
    assert key(name, **params) == KEYS[asked]
    of_sets = {"count": 7, "skip_bad": True} | ({"exact": "all"} if name == "patch-heads" else {})
    assert key(name, **params, **of_sets) == KEYS[asked]


def test_keys_of_sets():
    """Only what decides the answer is in them: a maker's seed and size, a table's rows."""
    table, seeds = {"pairs": [row("a", "b", ("c", "d"))]}, [RUN.model_copy(update={"seed": 5}), RUN]
    assert key(**table) == key(**table, **ONE, count=7) == key(**table, run=seeds[0])
    assert key(**table) != key(**table, skip_bad=True)
    made = {"maker": "order"}
    assert key(**made) == key(**made, **ONE, **table, skip_bad=True)
    others = [{"count": 7}, {"exact": "all"}, {"maker": "copying"}, {"what": "values"}]
    distinct = [key(**made), key(**made, run=seeds[0]), *(key(**made | each) for each in others)]
    assert len({*distinct, key(**table)}) == 7


def test_too_many_pairs(tmp_path):
    """What would fit is said, and fits."""
    run, store = describe_run("demo-gpt2", context=64), Store(tmp_path)
    quotas = settings().model_copy(update={"max_tokens": 100_000})

    def check(count, **more):
        asked = {"maker": "copying", "count": count, "exact": "all", **more}
        plan = make_plan(Request(analysis="patch-heads", run=run, params=asked))
        check_plan(store, plan, [plan], quotas)

    with pytest.raises(TooLarge, match=r"\(pairs times runs times length\): choose up to") as error:
        check(1000)
    few = int(str(error.value).split("choose up to ")[1].split()[0])
    check(few)
    with pytest.raises(TooLarge):
        check(few + 9)
    check(few + 9, exact="largest")


def test_a_table_is_what_somebody_typed():
    """Answers about it are for its reader alone; those of a maker are for all."""
    assert typed({"pairs": "a table"}, "random")
    assert not typed({"maker": "order", "count": 7}, "random")
