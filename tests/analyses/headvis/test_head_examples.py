"""Example texts of heads: by hand, in plain loops, drawn fairly, in bounded memory; their files."""

import json
from bisect import bisect_right

import numpy as np
import pytest
import torch

import poskernel_core as pk
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.head_measures.spec import HeadMeasures
from poskernel_core.analyses.headvis.experiment import TOP, Kept, Largest
from poskernel_core.analyses.headvis.spec import HeadExamples, HeadExamplesParams
from poskernel_core.analyses.headvis.tree import folder_of, tree
from poskernel_core.analyses.headvis.views import sharpest
from poskernel_core.analyses.views import figure_of
from poskernel_core.cli import main as cli
from poskernel_core.common.result import Result, Value
from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.observers import Batch
from tests.support import builders, oracles_headvis
from tests.support.made_results import result
from tests.support.passes import loaded
from tests.support.raw import analyse, of_all_texts
from tests.support.refusals import refused
from tests.support.truth import truth_of

TEXTS, CONTEXT = 13, 17


def examples(path, ids, batch=None, **params):
    model = loaded(path)
    words = {number: f"w{number}" for number in range(1000)}
    subject = ExperimentContext(
        model, ids, [], lambda some: [words[n] for n in some], False, batch=batch
    )
    checked = HeadExamplesParams(**params)
    return of_all_texts(HeadExamples().perform(subject, {}, checked, lambda done, total: None))


def test_by_hand():
    """Rows (1), (0.6, 0.4), (0.2, 0.5, 0.3), and one of the keys from 1 on, in three blocks."""
    seen = Largest(4, True)
    batch = Batch(torch.zeros(1, 4, dtype=torch.long), range(1))
    blocks = (0, 0, [[1, 0], [0.6, 0.4]]), (2, 0, [[0.2, 0.5, 0.3]]), (3, 1, [[0.7, 0.2, 0.1]])
    for first, key, rows in blocks:
        seen.pattern(PatternBlock(0, first, key, torch.tensor(rows)[None, None]), batch)
    values, keys = (each[0, 0].numpy() for each in seen.top[0])

    assert pytest.approx(0.7) == float(seen.largest[0])
    np.testing.assert_allclose([1, 0], values[0, :2])
    np.testing.assert_allclose([0.5, 0.3, 0.2, 0], values[2, :4])
    assert [1, 2, 0, 0] == keys[2, :4].tolist()
    assert [1, 2, 3, 0] == keys[3, :4].tolist()


def test_only_the_first_key_is_attended():
    """Nothing but key 0: the largest attention that counts is 0, the top key is key 0."""
    seen = Largest(2, True)
    batch = Batch(torch.zeros(1, 2, dtype=torch.long), range(1))
    seen.pattern(PatternBlock(0, 0, 0, torch.tensor([[[[1.0, 0], [1, 0]]]])), batch)
    assert 0 == float(seen.largest[0])
    assert 0 == int(seen.top[0][1][0, 0, 1, 0])


@pytest.mark.parametrize(("name", "batch"), [("gpt2", 5), ("mistral", 1)])
def test_plain_transformers(model_dirs, name, batch):
    ids = builders.random_ids(TEXTS, CONTEXT, seed=2).numpy()
    sizes = {"intervals": 3, "per_interval": 2, "in_last": 4}
    found = examples(model_dirs[name], ids, batch=batch, **sizes)
    places, kept = {int(text): row for row, text in enumerate(found.coordinates["text"])}, set()

    for layer, patterns in enumerate(truth_of(model_dirs[name], ids).attentions):
        for head in range(patterns.shape[1]):
            texts = [text[head].astype(float) for text in patterns]
            largest = np.array([oracles_headvis.largest(text.tolist()) for text in texts])
            ordered = sorted(largest)
            limits = [ordered[round(i * TEXTS / 3)] for i in (1, 2)]
            here = {key: value[layer, head] for key, value in found.values.items()
                    if found.axes[key][:2] == ("layer", "head")}  # fmt: skip
            numbers = here["example_text"]
            assert 8 == len(numbers) == len(set(numbers.tolist()))
            kept |= {*numbers.tolist()}
            np.testing.assert_allclose(largest[numbers], here["max_activation"], atol=1e-5)
            for place, number in enumerate(numbers.tolist()):
                near = [bisect_right(limits, largest[number] + off) + 1 for off in (-1e-5, 1e-5)]
                assert here["interval"][place] in near
                attention, keys = (here[key][place] for key in ("top_attention", "top_key"))
                expected = [oracles_headvis.top_keys(row, TOP) for row in texts[number].tolist()]
                top = [[p for p, _ in row] for row in expected]
                np.testing.assert_allclose(attention, top, atol=6e-5)
                at = np.take_along_axis(texts[number], keys.astype(int), axis=1)
                np.testing.assert_allclose(np.where(attention > 0, at, 0), attention, atol=6e-5)
            top = sorted(here["max_activation"][4:])
            np.testing.assert_allclose(top, ordered[-4:], atol=1e-5)
            below = here["activation_histogram"].cumsum()
            for edge, count in zip(np.arange(1, 50) / 50, below, strict=False):
                assert (largest < edge - 1e-5).sum() <= count <= (largest < edge + 1e-5).sum()
            assert (50, TEXTS) == (len(below), below[-1])
            mean = float(here["mean_max_activation"])
            assert np.mean(largest) == pytest.approx(mean, abs=1e-5)
    assert kept == places.keys()
    for number, row in places.items():
        words = [found.words("words")[w] for w in found.values["token"][row]]
        assert [f"w{token}" for token in ids[number]] == words


def test_texts_are_drawn_evenly():
    """Of 13 texts in the first interval each is kept about as often, over many heads."""
    params = HeadExamplesParams(intervals=2, per_interval=4, in_last=1)
    kept = Kept((1, 101), 1, params, np.full((1, 101, 1), 0.5))
    top = torch.zeros(101, 1, TOP), torch.zeros(101, 1, TOP, dtype=torch.long)
    for number in range(13):
        kept.add(0, number, np.full(101, 0.25), top)
    counts = np.bincount(kept.number[0, :, :4].ravel(), minlength=13)

    assert 404 == counts.sum()  # 31 expected of each, with a standard deviation of 4.6
    assert 16 < counts.min() <= counts.max() < 46
    assert (kept.number[0, :, 4] == -1).all()
    assert (kept.interval[0, :, 4] == 0).all()


def test_too_large():
    with refused(r"4 x 1000 heads would take 6.3 GB: choose a shorter"):
        Kept((4, 1000), 2**15, HeadExamplesParams(intervals=1, in_last=1), np.zeros((4, 1000, 0)))


def test_known_head(tmp_path):
    path = builders.look_back(tmp_path / "look_back", 3, 23, 6.0)
    found = examples(path, builders.random_ids(9, 23, seed=5).numpy(), intervals=1, in_last=3)
    keys = found.values["top_key"][0, 0, :, :, 0]
    assert (keys[:, 3:] == np.arange(3, 23) - 3).all()
    assert (found.values["max_activation"][0, 0] > 0.999).all()


def made() -> tuple[Result, Result, Result]:
    """Results of one layer of two heads over one text of three tokens, written by hand."""
    numbers = {name: np.array([[1 / 3, np.nan]]) for name in oracles_headvis.METRICS}
    metrics = result("headvis", {}, numbers)
    metrics.provenance.update(
        model="/models/my model", corpus="a/b.txt", windows=9, context=3, dtype="float32",
        start_token=False, seed=0, date="2026-01-01", model_fingerprint="m",
        corpus_fingerprint="c",
    )  # fmt: skip
    top = np.zeros((1, 2, 2, 3, 2))
    top[0, 0, 1] = [[1, 0], [0.7, 0.3], [0.5, 0.004]]
    keys = np.zeros((1, 2, 2, 3, 2), dtype=np.uint16)
    keys[0, 0, 1] = [[0, 0], [1, 0], [0, 2]]
    values = {
        "interval": np.array([[[0, 2], [0, 0]]]),
        "example_text": np.array([[[-1, 4], [-1, -1]]]),
        "max_activation": np.array([[[np.nan, 0.7], [np.nan, np.nan]]]),
        "top_key": keys,
        "top_attention": top,
        "activation_histogram": np.eye(2, 50, 35, dtype=np.int64)[None],
        "mean_max_activation": np.array([[0.7, 0.0]]),
        "token": np.array([[0, 1, 0]]),
    }
    shown = result("head-examples", {}, values, {"intervals": 2}, {"words": ["a", " b"]},
                   coordinates={"text": np.array([4])})  # fmt: skip
    texts = {
        "measure": ["attention sink", "kind", "qk distance"],
        "unit": ["share", "", "tokens"],
        "kinds": [["", ""], ["local", "uniform"], ["", ""]],
    }
    ours = {"value": np.array([[[1.5, 2]], [[0, 1]], [[3, 4]]])}
    return metrics, shown, result("head-measures", {}, ours, texts=texts)


def test_the_files_by_hand():
    results = made()
    files = dict(tree(*results))

    assert ("my-model", "headvis", "b.txt") == folder_of(results[0])
    assert {"scatter_data.json", "heads/L0H0.json", "heads/L0H1.json", "config.json",
            "server_config.json", "attributions/manifest.json"} == set(files)  # fmt: skip
    assert {} == files["server_config.json"] == files["attributions/manifest.json"]
    one, other = files["scatter_data.json"]
    assert {"layer": 0, "head": 0} == {key: one[key] for key in ("layer", "head")}
    assert 0.3333 == one["self_attention_score"]
    assert other["induction_score"] is None
    assert (1.5, 3) == (one["attention_sink"], one["poskernel_qk_distance"])
    assert "kind" not in one
    config = files["config.json"]
    assert [*one][2:] == config["metrics"] == [*config["metric_descriptions"]]
    assert [[0, 0], [0, 1]] == config["heads"]
    assert {"n_sequences": 9, "seq_len": 3, "dtype": "float32"}.items() <= config[
        "pipeline_config"
    ].items()

    head = files["heads/L0H0.json"]
    (text,) = head["sequences"]
    assert (4, 2, ["a", " b", "a"], 3, 0.7) == tuple(
        text[key] for key in ("sequence_id", "interval", "tokens", "seq_len", "max_activation")
    )
    assert [0, 3, 4, 6] == text["attention_indices"]
    assert [1, 0.3, 0.7, 0.5] == text["attention_values"]
    distances = head["qk_distance_histogram"]
    assert [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096] == distances["bin_edges"]
    assert [1.7, 0.3, 0.5] == distances["bin_values"][:3]
    assert [0, 0.02, 0.04] == head["histogram"]["bin_edges"][:3]
    assert 1 == head["histogram"]["bin_values"][35]
    assert [{"token": "a", "weight": 1.5}, {"token": " b", "weight": 1}] == head["top_query_tokens"]
    assert [{"token": "a", "weight": 1.8}, {"token": " b", "weight": 0.7}] == head["top_key_tokens"]
    assert {"n_samples": 1, "mean_max_activation": 0.7} == head["statistics"]
    assert [] == files["heads/L0H1.json"]["sequences"]


@pytest.mark.usefixtures("near_worker")
def test_the_command(model_dirs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    parts = HeadMeasures.parts  # of all measures, those of one question
    monkeypatch.setattr(HeadMeasures, "parts", lambda *given: {"etc": parts(*given)["etc"]})
    ids = builders.random_ids(7, 29, seed=6).numpy()
    np.save(tmp_path / "tokens.npy", ids)
    asked = ("--corpus", str(tmp_path / "tokens.npy"), "--context", "29", "--device", "cpu")
    code = cli.main(["export", str(model_dirs["gpt2"]), "--headvis", str(tmp_path / "out"),
                     "--no-start-token", *asked])  # fmt: skip
    out, err = capsys.readouterr()

    assert (0, "") == (code, out)
    (folder,) = (tmp_path / "out").glob("*/headvis/*")
    assert str(folder) in err
    gathered = pk.run_pass(loaded(model_dirs["gpt2"]), ids, gather=("headvis",), start_token=False)
    expected = analyse("headvis", gathered).values
    rows = json.loads((folder / "scatter_data.json").read_text())
    assert len(rows) == expected["qk_distance"].size
    for row in rows:
        for name in oracles_headvis.METRICS:
            value = expected[name][row["layer"], row["head"]]
            assert row[name] == (None if np.isnan(value) else pytest.approx(value, abs=6e-5))
        head = json.loads((folder / f"heads/L{row['layer']}H{row['head']}.json").read_text())
        assert 7 == sum(head["histogram"]["bin_values"])
        assert len(head["sequences"]) == head["statistics"]["n_samples"] > 0
    assert "effective_token_count" in rows[0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("x.zip", "--headvis", "y"), "Give one of FILE"),
        (("x.zip", "--context", "64"), "--context is for a folder"),
        (("--headvis", "/dev/null/x"), "Cannot make the folder"),
    ],
)
def test_bad_commands(given, words, capsys):
    assert 2 == cli.main(["export", "demo-gpt2", *given])
    assert words in capsys.readouterr().err


WORDS = ["<s>", " a", " b", "\n", " c"]
COUNT, LENGTH, EXAMPLES, RANKS = 3, 7, 4, 2


@pytest.fixture
def found():
    """Two heads; of the second, texts 5 and 9 are kept, and two places are empty."""
    heads = (1, 2, EXAMPLES)
    attention = np.full((*heads, LENGTH, RANKS), 0.01)
    key = np.zeros((*heads, LENGTH, RANKS), dtype=int)
    attention[0, 1, 2, 6], key[0, 1, 2, 6] = (0.4, 0.3), (0, 2)  # key 0 does not count
    attention[0, 1, 2, 0], key[0, 1, 2, 0] = (0.9, 0.0), (0, 1)  # nor query 0
    attention[0, 1, 0, 5], key[0, 1, 0, 5] = (0.8, 0.1), (4, 1)
    values = {
        "example_text": np.full(heads, -1),
        "max_activation": np.full(heads, np.nan),
        "top_key": key,
        "top_attention": attention,
        "token": np.array([[0, 1, 2, 3, 4, 1, 2], [0, 4, 4, 4, 4, 4, 4], [0, 2, 1, 2, 1, 2, 1]]),
    }
    values["example_text"][0, 1, [0, 2]] = 9, 5
    values["max_activation"][0, 1, [0, 2]] = 0.8, 0.3
    found = result("head-examples", {}, values, coordinates={"text": np.array([5, 7, 9])})
    return found.with_text(Value("words", ("word",), "token", ""), WORDS)


def test_the_sharpest_first(found):
    first, second = sharpest(found.select(layer=0, head=1))
    assert (first.attention, first.query, first.key) == (0.8, 5, 4)
    assert first.words == ("<s>", " b", " a", " b", " a", " b", " a")
    assert (second.attention, second.query, second.key) == (0.3, 6, 2)
    assert second.around(2) == ("<s> a", " b", "\n c a b")
    assert sharpest(found.select(layer=0, head=1), most=1) == [first]
    assert sharpest(found.select(layer=0, head=0)) == []


def test_as_a_table(found):
    cells = figure_of(found.select(layer=0, head=1)).data[0].cells.values
    assert list(cells[0]) == ["0.800", "0.300"]
    assert list(cells[3]) == ["1", "4"]
