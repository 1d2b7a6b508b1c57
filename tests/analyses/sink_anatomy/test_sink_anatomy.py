"""What makes the first key a sink: by transformers and loops, where it is known, and drawn."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from poskernel_core.analyses.sink_anatomy.formulas import (
    FACTORS,
    arrangements_of,
    contrasts,
    interactions,
    numbers,
    subsets,
)
from poskernel_core.analyses.sink_anatomy.spec import SinkAnatomy
from poskernel_core.analyses.sink_anatomy.views import arrangement_rows
from poskernel_core.analyses.views import figure_of
from poskernel_core.engine.engine import describe_run
from tests.support import oracles
from tests.support import oracles_sink_anatomy as oracle
from tests.support.builders import START, sinks
from tests.support.builders.contextual import ask, some_windows, study
from tests.support.builders.families import FAMILY_MODELS
from tests.support.made_results import result
from tests.support.passes import loaded
from tests.support.raw import of_all_texts
from tests.support.refusals import refused
from tests.support.truth import Recorder

LENGTH = 11
MAIN = tuple(FACTORS)
# model, start token, texts, scale of scores by layer
CASES = {
    "local layer": ("gpt_neo", True, 3, [1.0] * 3),
    "rows from 2": ("opt", False, 3, [7**-0.5] * 3),
    "rotary, grouped": ("llama", True, 11, [10**-0.5] * 3),
}
FAMILIES = ("gpt-bigcode", "bloom", "gemma2", "gpt-oss")


def perform(path, windows, start=True, **params):
    subject, _ = study(path, windows, start)
    checked = SinkAnatomy.params(**{"length": LENGTH, "threshold": 1e-9, **params})
    return of_all_texts(SinkAnatomy().perform(subject, {}, checked, lambda done, total: None))


def texts_of(windows, start):
    """What a window gives, in groups of equal size: ordinary target, filler, and text."""
    first, kept = int(start), len(windows) // 10 * 10 or len(windows)
    return windows[:kept, first : first + 2 + LENGTH].tolist()


def test_effects_by_hand():
    """Attention is 0.8 with both properties, 0.2 with either, 0 with neither.

    Standing first: (0.8 + 0.2) / 2 - (0.2 + 0) / 2 = 0.4, and so the start token; together
    (0.8 + 0) / 2 - (0.2 + 0.2) / 2 = 0.2. Exchanged: own keys 0.8 and 0.2, others' 0.3 and 0.5:
    key ((0.8 - 0.3) + (0.5 - 0.2)) / 2 = 0.4, query ((0.8 - 0.5) + (0.3 - 0.2)) / 2 = 0.2.
    """
    arrangements = arrangements_of("rotary")
    rows = [[0.8, 0.0], [0.2, 0.0], [0.7, 0.2], [0.6, 0.0], [0.4, 0.1], [0.3, 0.0], [0.5, 0.0]]
    found = numbers(np.array(rows)[None, None], arrangements)
    one = {name: value[0, 0] for name, value in found.items()}
    assert (0.8, 0.4, 0.4) == pytest.approx([one[n] for n in ("sink", MAIN[0], MAIN[2])])
    assert math.isnan(one["position_zero"])
    assert [0.2] == pytest.approx(one["interaction"].tolist())
    np.testing.assert_allclose(one["exchanged"], [[0.8, 0.5], [0.3, 0.2]])
    assert (0.4, 0.2) == pytest.approx((one["key_effect"], one["query_effect"]))
    assert [0.8, 0.4] == pytest.approx(one["moved_back"].tolist())


def test_arrangements_by_hand():
    """Learned positions have each order with each order of ids; others have ids in order."""
    assert [
        "start token (id 0), filler (id 1)",
        "ordinary token (id 0), filler (id 1)",
        "start token (id 1), filler (id 0)",
        "ordinary token (id 1), filler (id 0)",
        "filler (id 1), start token (id 0)",
        "filler (id 1), ordinary token (id 0)",
        "filler (id 0), start token (id 1)",
        "filler (id 0), ordinary token (id 1)",
    ] == [str(each) for each in arrangements_of("learned")]
    for scheme in ("rotary", "ALiBi", "no"):
        shown = [str(each) for each in arrangements_of(scheme)]
        assert all(each.index("id 0") < each.index("id 1") for each in shown)
        assert len(set(shown)) == 4


@given(
    arrays.arrays(float, (3, 2, 13, 2), elements=st.floats(0, 1)),
    st.sampled_from(("learned", "rotary")),
)
def test_effects_add_up(seen, scheme):
    """Mean and effects give back the attention in every arrangement; key and queries the gap."""
    arrangements = arrangements_of(scheme)
    found = numbers(seen, arrangements)
    single = [each[0] for each in subsets(arrangements) if len(each) == 1]
    effects = [found[name][..., None] for name in single] + [found["interaction"]]
    target = np.stack([seen[:, :, row, each.place] for row, each in enumerate(arrangements)], -1)
    signs = np.sign(contrasts(arrangements))
    again = target.mean(-1, keepdims=True) + np.concatenate(effects, -1) @ signs / 2
    np.testing.assert_allclose(again, target, atol=1e-12)
    gap = found["exchanged"][..., 0, 0] - found["exchanged"][..., 1, 1]
    np.testing.assert_allclose(found["key_effect"] + found["query_effect"], gap, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_every_head(paths, case):
    """All values and errors, against transformers' eager attention and loops."""
    name, start, count, scale = CASES[case]
    windows = some_windows(count, LENGTH + 5, start)
    found, path = perform(paths[name], windows, start), paths[name]
    learned = "standing_first" in found.values and found.values["interaction"].shape[-1] == 4
    settings = oracle.LEARNED if learned else oracle.OTHERS
    texts, seen, moved, crossed = texts_of(windows, start), [], [], []
    for ordinary, filler, *text in texts:
        rows = []
        for setting in settings:
            tokens, ids = oracle.front(setting, START, ordinary, filler)
            rows.append(oracle.run(path, tokens + text, [*ids, *range(2, 2 + LENGTH)]))
        seen.append(rows)
        tokens = [START, filler, *text]
        moved.append([
            oracle.run(path, tokens, [0, *range(1 + far, len(tokens) + far)])
            for far in found.coordinates["distance"].tolist()
        ])  # fmt: skip
        crossed.append([
            oracle.queries_and_keys(path, [token, filler, *text], scale)
            for token in (START, ordinary)
        ])  # fmt: skip
    for layer, head in np.ndindex(found.values["sink"].shape):
        each = {"attention": [], "moved_back": [], "exchanged": []}
        for text in range(len(texts)):
            fronts = [oracle.to_front(row[layer], head) for row in seen[text]]
            each["attention"].append(fronts)
            each["moved_back"].append([oracle.to_front(r[layer], head)[0] for r in moved[text]])
            table = [[0.0, 0.0], [0.0, 0.0]]
            for i, j in np.ndindex(2, 2):
                queries, keys = (crossed[text][j][part][layer] for part in (0, 1))
                kv = head * len(keys) // len(queries)
                key = crossed[text][i][1][layer][kv, 0]
                table[i][j] = oracle.exchanged(
                    queries[head], keys[kv], key, seen[text][0][layer][head] > 0
                )
            each["exchanged"].append(table)
        each["sink"] = [fronts[0][0] for fronts in each["attention"]]
        targets = [[fronts[row][0 if s[0] else 1] for row, s in enumerate(settings)]
                   for fronts in each["attention"]]  # fmt: skip
        for place, value in enumerate(MAIN):
            if learned or place != 1:
                each[value] = [oracle.effect(settings, row, [place]) for row in targets]
        sets = [(0, 1), (0, 2), (1, 2), (0, 1, 2)] if learned else [(0, 2)]
        each["interaction"] = [
            [oracle.effect(settings, row, several) for several in sets] for row in targets
        ]
        each["key_effect"] = [
            (t[0][0] - t[1][0] + t[0][1] - t[1][1]) / 2 for t in each["exchanged"]
        ]
        each["query_effect"] = [
            (t[0][0] - t[0][1] + t[1][0] - t[1][1]) / 2 for t in each["exchanged"]
        ]
        for value, by_text in each.items():
            every = np.array(by_text)
            flat = every.reshape(len(texts), -1)
            error = [
                oracles.jackknife(len(texts), lambda kept, column=column: column[kept].mean())
                for column in flat.T
            ]
            for known, mine in ((flat.mean(axis=0), found.values), (error, found.errors)):
                shown = mine[value][layer, head].ravel()
                np.testing.assert_allclose(shown, known, atol=5e-6, err_msg=value)
    assert np.isnan(found.values["position_zero"]).all() != learned
    told = {"errors": "windows", "groups": min(10, count), "texts": len(texts)}
    assert told == found.provenance


@pytest.mark.parametrize("name", FAMILIES)
def test_attention_of_families(tmp_path, name):
    """ALiBi, soft caps, windows and learned sinks: the attention in every row."""
    path, start = FAMILY_MODELS[name].build(tmp_path / name), True
    windows = some_windows(2, LENGTH + 5, start)
    found = perform(path, windows, start)
    learned = name == "gpt-bigcode"
    settings = oracle.LEARNED if learned else oracle.OTHERS
    shape, rows = found.values["attention"].shape, []
    for ordinary, filler, *text in texts_of(windows, start):
        for setting in settings:
            tokens, ids = oracle.front(setting, START, ordinary, filler)
            ids = [*ids, *range(2, 2 + LENGTH)] if learned else None
            layers = oracle.run(path, tokens + text, ids, mask=learned)
            heads = [[oracle.to_front(layer, head) for head in range(shape[1])] for layer in layers]
            rows.append(heads)
    mean = np.reshape(rows, (2, len(settings), *shape[:2], 2)).mean(axis=0)
    np.testing.assert_allclose(mean.transpose(1, 2, 0, 3), found.values["attention"], atol=5e-6)
    assert (len(found.coordinates["distance"]) > 1) == (name in ("gemma2", "gpt-oss"))


def test_ids_out_of_order_do_not_hide_the_target(paths):
    """transformers takes ids that do not step by one for packed texts, unless there is a mask.

    In a row of its own and without a mask of ones, no query of the text sees the front tokens, in
    silence. A model of ours gives the mask with the ids, so that a single row is safe as well.
    """
    path, ids = paths["gpt2"], [1, 0, *range(2, 2 + LENGTH)]
    tokens = [START, *texts_of(some_windows(2, LENGTH + 5, False), False)[0][1:]]
    hidden, shown = (oracle.run(path, tokens, ids, mask=mask) for mask in (False, True))
    recorder = Recorder(patterns=True)
    loaded(path).run(torch.tensor([tokens]), observers=[recorder], positions=torch.tensor([ids]))
    for layer, pattern in enumerate(recorder.patterns()):
        np.testing.assert_allclose(pattern[0], shown[layer], atol=5e-6)
        assert not hidden[layer][:, 2:, :2].any()
        assert shown[layer][:, 2:, :2].min() > 0


def test_one_cause(tmp_path):
    """Sinks by position 0, by the start token, and by the queries, as they were made."""
    found = perform(sinks.one_cause(tmp_path / "model"), some_windows(7, 19, True), threshold=0.3)
    visible, high = range(3, 3 + LENGTH), math.exp(sinks.HEIGHT)
    up = np.mean([high / (high + n - 1) for n in visible])
    level, down = np.mean([1 / n for n in visible]), np.mean([1 / (high + n - 1) for n in visible])
    low = np.mean([1 / (1 + (n - 1) * high) for n in visible])

    def at(*names, layer, head):
        return [float(found.values[name][layer, head]) for name in names]

    zero = at(*MAIN, "key_effect", "query_effect", layer=0, head=0)
    assert zero == pytest.approx([0, up - down, 0, 0, 0], abs=1e-6)
    start = at(*MAIN, "key_effect", "query_effect", layer=0, head=1)
    assert start == pytest.approx([0, 0, up - level, up - level, 0], abs=1e-6)
    queries = at("key_effect", "query_effect", layer=1, head=0)
    assert queries == pytest.approx([0, up - low], abs=1e-4)
    # an id that is not 0 gets what the filler leaves: nothing, or as much as all others
    others = np.mean([1 / (n - 1) for n in visible])
    assert at(*MAIN, layer=1, head=0) == pytest.approx(
        [0, (up - others) / 2, (up - others) / 2], abs=1e-3
    )
    names = found.words("factors")
    together = found.values["interaction"][1, 0, names.index("position 0 × start token")]
    assert together == pytest.approx((up + others) / 2, abs=1e-3)

    none = [(0, 2), (1, 1), (1, 2)]
    for layer, head in np.ndindex(2, 3):
        without = (layer, head) in none
        assert without == bool(found.texts["reason"][layer, head])
        for name in found.values.keys() - {"sink"}:
            for kind in (found.values, found.errors):
                assert np.isnan(kind[name][layer, head]).all() == without
    assert level == pytest.approx(found.values["sink"][0, 2], abs=1e-6)
    assert "no sink: the first key gets less than 0.3" == found.texts["reason"][0, 2]


def test_through_the_laboratory(paths, tmp_path):
    """By way of the store: what is read."""
    params = {"texts": 12, "length": 7, "threshold": 1e-9}
    found = ask(tmp_path, "sink-anatomy", paths["llama"], params, context=31, windows=99)
    assert (10, 10) == tuple(found.provenance[name] for name in ("windows", "texts"))
    assert [0, 8] == found.coordinates["distance"].tolist()


@pytest.mark.parametrize(("start", "need"), [(True, 14), (False, 13)])
def test_too_long(paths, start, need):
    """Eleven tokens behind two need 13 tokens, and one for the start token: one sentence."""
    params = SinkAnatomy.params(length=LENGTH)
    run = describe_run(str(paths["gpt2"]), context=need - 1, start_token=start)
    with refused(f"{need} tokens or more, got {need - 1}: ask"):
        SinkAnatomy().canonical(run, params)
    SinkAnatomy().canonical(run.model_copy(update={"context": need}), params)
    geometry = loaded(paths["gpt2"]).geometry
    assert {"length": LENGTH - 1} == SinkAnatomy().default_params(run, geometry)
    for windows in ((1, 19), (5, 13)):
        with refused("two texts of 13 tokens or more"):
            perform(paths["gpt2"], some_windows(*windows, True))


def test_no_start_token(paths):
    """A model without a start token is refused in a sentence."""
    subject, _ = study(paths["gpt2"], some_windows(3, 19, False), False)
    params = SinkAnatomy.params(length=LENGTH)
    for source in (None, replace(subject.source, start=None)):
        with refused("no start token, so it cannot"):
            SinkAnatomy().perform(replace(subject, source=source), {}, params, lambda *_: None)


NAMES = ("standing_first", "position_zero", "start_token", "key_effect", "query_effect")


@pytest.mark.parametrize(("scheme", "bars"), [("learned", 9), ("rotary", 5)])
def test_bars_and_table(scheme, bars):
    """A bar per effect that there is, with its error; a row per arrangement."""
    arrangements = arrangements_of(scheme)
    factors = interactions(arrangements)
    shapes = dict.fromkeys(("sink", *NAMES), (2, 3))
    shapes |= {"attention": (2, 3, len(arrangements), 2), "interaction": (2, 3, len(factors))}
    texts = {
        "arrangements": [str(each) for each in arrangements],
        "factors": factors,
        "reason": [[""] * 3] * 2,
    }
    made = result("sink-anatomy", shapes, texts=texts)
    if scheme != "learned":
        made.values["position_zero"][:] = np.nan
    head = made.select(layer=1, head=2)
    drawn = {
        name: (x, error)
        for trace in figure_of(head).data
        for name, x, error in zip(trace.y, trace.x, trace.error_x.array, strict=True)
    }
    assert bars == len(drawn)
    assert (scheme == "learned") == ("position 0" in drawn) == ("all three" in drawn)
    names = {"standing first": "standing_first", "start token": "start_token",
             "through its key": "key_effect", "through the queries": "query_effect"}  # fmt: skip
    for shown, name in names.items():
        assert drawn[shown] == (head.values[name], head.errors[name])
    at = head.values["interaction"][-1], head.errors["interaction"][-1]
    assert drawn[head.words("factors")[-1]] == at
    rows = [[*row[1:]] for row in arrangement_rows(head)]
    assert [[f"{each:.2f}" for each in pair] for pair in head.values["attention"]] == rows
    assert str(arrangements[3]) == arrangement_rows(head)[3][0]
    assert figure_of(made).data
