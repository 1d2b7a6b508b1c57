"""Place and content: by hand, by plain loops over the whole table, and heads with known scores."""

import math
from dataclasses import replace
from shutil import copytree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.analyses.place_and_content.formulas import SHARES, variances
from poskernel_core.analyses.place_and_content.spec import PlaceAndContent
from poskernel_core.common.attention import ScoreRule
from tests.support import oracles
from tests.support.builders import place
from tests.support.builders.contextual import ask, some_windows, study
from tests.support.builders.families import FAMILY_MODELS
from tests.support.oracles_rotary import turned_of
from tests.support.raw import of_all_texts

TEXTS = 7
# skip, start token, context, windows by layer
CASES = {
    "mistral": (1, True, 19, [7] * 3),
    "gpt_neox": (0, False, 17, [None] * 3),
    "gemma2": (3, True, 17, [7, None, 7]),
}
SIZES = st.tuples(*[st.integers(1, most) for most in (11, 13, 5)])


def perform(path, ids, positions, start=True, batch=3, **params):
    subject = replace(study(path, ids, start, batch)[0], positions=tuple(positions))
    checked = PlaceAndContent.params(**params)
    return of_all_texts(PlaceAndContent().perform(subject, {}, checked, lambda done, total: None))


@pytest.fixture(scope="module")
def dirs(model_dirs, tmp_path_factory):
    root = tmp_path_factory.mktemp("families")
    names = ("gemma2", "smollm3", "lfm2")
    return model_dirs | {name: FAMILY_MODELS[name].build(root / name) for name in names}


def some_table(seed, places=17, batch=3, d=5):
    """Queries with their quarter turns, turns and keys; no mean is 0."""
    source = np.random.default_rng(seed)
    sizes = (batch, 2, 2, d), (1, places, 2, d), (batch, places, d)
    return [source.normal(size=size) + source.normal(size=d) for size in sizes]


def parts(table):
    """Place, content and interaction of a table, and twice the covariance along its diagonal."""
    size = range(len(table))
    whole = oracles.mean([oracles.mean(row) for row in table])
    place = [oracles.mean(row) - whole for row in table]
    content = [oracles.mean([row[j] for row in table]) - whole for j in size]
    rest = [(table[i][j] - whole - place[i] - content[j]) ** 2 for i in size for j in size]
    return (
        oracles.mean([a**2 for a in place]),
        oracles.mean([b**2 for b in content]),
        oracles.mean(rest),
        2 * oracles.mean([a * b for a, b in zip(place, content, strict=True)]),
    )


def expected_shares(rows):
    """The shares of all windows together."""
    sums = [math.fsum(column) for column in zip(*rows, strict=True)]
    return [each / math.fsum(sums[:3]) for each in sums]


@given(SIZES, st.integers(0, 2**32 - 1))
def test_equals_the_whole_table(sizes, seed):
    """Rows, columns and the rest of all scores of all keys at all places, none negative."""
    queries, turns, keys = some_table(seed, *sizes)
    found = variances(queries, turns, keys)
    assert found.shape == (5, *queries.shape[:2])
    for one, head in np.ndindex(queries.shape[:2]):
        turned = [sum(queries[one, head, part] * row[part] for part in (0, 1)) for row in turns[0]]
        table = np.array(turned) @ keys[one].T
        expected = parts(table.tolist())
        near = {"rel": 1e-12, "abs": 1e-12 * float((table**2).mean())}
        assert found[:4, one, head].tolist() == pytest.approx(expected, **near)
        assert found[:3, one, head].sum() == pytest.approx(table.var(), **near)
    assert (found[:3] >= -1e-15 * found[4]).all()


@pytest.mark.parametrize("name", CASES)
def test_plain_loops(dirs, name):
    """Every key turned to every place from where transformers has it, in models of three kinds."""
    skip, start, context, windows = CASES[name]
    ids, positions = some_windows(TEXTS, context, start), (0, skip + 1, 11, context - 2)
    result = perform(dirs[name], ids, positions, start, skip=skip, first_windows=TEXTS)
    truth = turned_of(dirs[name], ids)
    assert len(truth.queries) == 3

    for number, queries in enumerate(truth.queries):
        heads = queries.shape[1]
        for head, at in ((heads - 1, 3), (2, 1), (1, 0)):
            n = positions[at]
            low = ScoreRule(1.0, windows[number]).first_visible(n, skip)
            found = [result.values[part][number, head, at] for part in SHARES]
            errors = [result.errors[part][number, head, at] for part in SHARES]
            if n - low < 1:
                assert np.isnan(found).all()
                continue
            rows = [parts(truth.table(number, text, head, n, low)) for text in range(TEXTS)]
            expected = expected_shares(rows)
            np.testing.assert_allclose(found, expected, atol=1e-5)
            left = [expected_shares(rows[:out] + rows[out + 1 :]) for out in range(TEXTS)]
            columns = zip(*left, strict=True)
            np.testing.assert_allclose(
                errors, [*map(oracles.jackknife_se, columns)], rtol=1e-4, atol=1e-7
            )


def test_a_layer_without_rotation(dirs):
    """Only content decides there, exactly; a layer without heads has no shares."""
    result = perform(dirs["smollm3"], some_windows(TEXTS, 19, True), (13, 18), skip=2)
    assert (result.values["content_share"][1] == 1).all()
    for name in ("place_share", "both_share", "covariance_share"):
        assert (result.values[name][1] == 0).all()
        assert (np.abs(result.values[name][[0, 2]]) > 1e-4).all()
    result = perform(dirs["lfm2"], some_windows(TEXTS, 19, True), (13, 18), skip=2)
    for name in SHARES:
        assert np.isnan(result.values[name][[0, 2]]).all()
        assert np.isfinite(result.values[name][1]).all()


def test_heads_with_known_scores(tmp_path):
    """Keys all alike: place; a pair that does not turn: content; a product: mostly both."""
    T, skip, texts, positions = 31, 3, 20, (12, 30)
    ids = some_windows(texts, T, True)
    path = place.place_and_content(tmp_path / "place", T)
    result = perform(path, ids, positions, skip=skip, first_windows=texts)
    found = {name: result.values[name][0] for name in SHARES}

    np.testing.assert_allclose(found["place_share"][place.PLACE], 1, atol=1e-9)
    np.testing.assert_allclose(found["content_share"][place.CONTENT], 1, atol=1e-9)
    np.testing.assert_allclose(found["both_share"][place.SUM], 0, atol=1e-9)
    assert all(np.isnan(found[name][place.NOTHING]).all() for name in SHARES)
    for at, n in enumerate(positions):
        turn = np.cos(n - np.arange(skip, n + 1))
        codes = np.array(place.CODES)[ids[:, skip : n + 1]]
        own, content = turn.var(), codes.var(axis=1)
        added = own / (own + content.mean())
        assert found["place_share"][place.SUM, at] == pytest.approx(added, rel=1e-5)
        crossed = [((turn - turn.mean()) * code).mean() for code in codes]
        covariance = 2 * np.mean(crossed) / (own + content.mean())
        assert found["covariance_share"][place.SUM, at] == pytest.approx(covariance, rel=1e-4)
        squares = own * (codes.mean(axis=1) ** 2).mean(), turn.mean() ** 2 * content.mean()
        both = own * content.mean()
        for name, part in zip(SHARES, (*squares, both), strict=False):
            share = found[name][place.PRODUCT, at]
            assert share == pytest.approx(part / (sum(squares) + both), rel=1e-5)
        assert found["both_share"][place.PRODUCT, at] > 0.8


def test_through_the_store(dirs, tmp_path):
    """As a user asks: the recorded positions, the chosen number of windows, and groups of texts."""
    asked = {"first_windows": 13, "skip": 2}
    found = ask(tmp_path, "place-and-content", dirs["llama"], asked, context=37, windows=50)
    again = ask(tmp_path, "place-and-content", dirs["llama"], asked, context=37, windows=20)
    told = [found.provenance[name] for name in ("first_windows", "windows", "groups")]
    assert [10, 10, 10, 10] == [*told, again.provenance["windows"]]
    for name in SHARES:
        np.testing.assert_array_equal(found.values[name], again.values[name])


@pytest.mark.usefixtures("near_workers")
def test_over_training(dirs, tmp_path, engine):
    """Checkpoints of a rotary model: at each step the share that the model of that step has."""
    for step, name in ((0, "llama"), (16, "smollm3")):
        copytree(dirs[name], tmp_path / f"run/step-{step}")
    run = {"context": 23, "windows": 10, "engine": engine}
    params = {"measure": "place share", "query": 22, "skip": 2}
    found = pk.show("over-training", str(tmp_path / "run"), params=params, **run)
    last = pk.show("place-and-content", str(dirs["smollm3"]), params={"skip": 2}, **run)
    assert found.values["measure"].shape == (2, 3, 6)
    np.testing.assert_allclose(
        found.values["measure"][1], last.select(query=22).values["place_share"], rtol=1e-6
    )
