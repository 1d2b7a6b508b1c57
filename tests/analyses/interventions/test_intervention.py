"""Interventions: their measures against the oracles, identities, and what is refused."""

import numpy as np
import pytest
import torch

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.interventions.experiment import CANDIDATES
from poskernel_core.analyses.interventions.spec import Intervention, InterventionParams
from poskernel_core.forward import interventions, loading
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from tests.support import builders, oracles, plain_gpt2
from tests.support import oracles_positions as op
from tests.support.refusals import refused
from tests.support.truth import Recorder

PROMPT = "The previous token, and the token before it"
CONTEXT = 41
# parameters, and their edit; edits are compared with plain loops in test_edits
CASES = {
    "average": ({"change": "average", "group": 4}, None),
    "stream": ({"change": "average", "group": 4, "layer": 1}, None),
    "blind": (
        {"change": "blind", "every": 3, "layers": "0, 2", "stage": "scores"},
        interventions.PredecessorKnockout(3, [0, 2], "scores"),
    ),
    "move": (
        {"change": "move", "moves": "5>2, 7>1, 7>3", "head": "L1H2", "scale": 2, "scope": "layer"},
        interventions.MovedAttention(1, 2, {5: [2], 7: [1, 3]}, "pattern", 10.0, 2.0, "layer"),
    ),
    "move another": (
        {"change": "move", "moves": "5>2", "edited": "L0H1", "stage": "scores", "strength": 3},
        interventions.MovedAttention(0, 1, {5: [2]}, "scores", 3.0, 1.0, "head"),
    ),
    "ablate": (
        {"change": "ablate", "heads": "L0H1, L2H4"},
        interventions.AblatedHeads([(0, 1), (2, 4)]),
    ),
    "remove": ({"change": "remove"}, interventions.RemovedEmbeddings("positions")),
    "remove tokens": (
        {"change": "remove", "embeddings": "tokens"},
        interventions.RemovedEmbeddings("tokens"),
    ),
}
BAD = {
    "cell outside": ("gpt2", {"head": "L3H0"}, "L0H0 to L2H4"),
    "edited head outside": ("gpt2", {"change": "move", "edited": "L0H9", "moves": "5>2"}, "L2H4"),
    "no moves": ("gpt2", {"change": "move", "moves": " , "}, "got none"),
    "key after row": ("gpt2", {"change": "move", "moves": "2>5"}, "comes after it"),
    "row outside": ("gpt2", {"change": "move", "moves": "99>5"}, "outside the prompt"),
    "word not there": ("gpt2", {"change": "move", "moves": "turtle>2"}, "no word 'turtle'"),
    "layers outside": ("gpt2", {"change": "blind", "layers": "0-3"}, "layers from 0 to 2"),
    "layer outside": ("gpt2", {"layer": 3}, "layer from 0 to 2"),
    "no heads": ("gpt2", {"change": "ablate"}, "got none"),
    "rotary average": ("llama", {}, "rotary positions"),
    "rotary stream": ("llama", {"layer": 1}, "rotary positions"),
}


def subject_of(path, text=PROMPT, windows=None, start_token=True):
    located = catalog.locate(str(path))
    tokenizer = load_tokenizer(located)
    if windows is None:
        windows = np.array([[*[builders.START] * start_token, *tokenizer.encode(text)]])
    words = tokenizer.decode_each(windows[0].tolist())
    model = loading.load(located, "cpu")
    return ExperimentContext(model, windows, words, tokenizer.decode_each, start_token)


def quiet(done, total):
    """Progress that nobody looks at."""


@pytest.fixture(scope="module")
def subjects(model_dirs):
    return {name: subject_of(model_dirs[name]) for name in ("gpt2", "llama")}


def softmax(rows):
    return [oracles.softmax(row) for row in np.asarray(rows).tolist()]


@pytest.mark.parametrize("case", CASES)
def test_intervention(model_dirs, subjects, streams, case):
    params, edit = CASES[case]
    params, subject = {"head": "L1H2", **params}, subjects["gpt2"]
    params = InterventionParams(text=PROMPT, **params)
    if case == "stream":
        rows = streams["repeated"].layer(1)["mean_residuals"].copy()
        edit = interventions.AveragedStream(1, 4, torch.from_numpy(rows))
    if case == "average":
        edit = interventions.AveragedPositions(4, subject.model.position_matrix())
    steps, recorder = [], Recorder(patterns=True)

    result = Intervention().perform(subject, streams, params, lambda *step: steps.append(step))
    values = result.values

    tokens, ids = subject.windows[0].tolist(), torch.from_numpy(subject.windows)
    run = plain_gpt2.run(model_dirs["gpt2"], tokens)
    changed = subject.model.run(ids, edit, [recorder])
    patterns = [pattern[0].numpy() for pattern in recorder.patterns()]
    p, q = softmax(run.logits), softmax(changed[0])
    clean, after = (
        [op.nll(each[n - 1], tokens[n]) for n in range(1, len(tokens))] for each in (p, q)
    )
    divergence = [op.kl(a, b) for a, b in zip(p, q, strict=True)]
    rise = np.subtract(after, clean).tolist()
    expected = {
        "clean": run.patterns[1, 2], "changed": patterns[1][2],
        "difference": patterns[1][2] - run.patterns[1, 2],
        "clean_loss": [np.nan, *clean], "changed_loss": [np.nan, *after],
        "mean_clean_loss": oracles.mean(clean), "mean_changed_loss": oracles.mean(after),
        "loss_change": oracles.mean(rise), "kl": divergence,
        "last_kl": divergence[-1], "mean_kl": oracles.mean(divergence),
    }  # fmt: skip
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, atol=3e-4, err_msg=name)
    error = oracles.standard_error(rise)
    assert error == pytest.approx(float(result.errors["loss_change"]), abs=3e-4)
    for layer, head in np.ndindex(3, 5):
        for name, grid in (("clean", run.patterns[layer]), ("changed", patterns[layer])):
            each = [float(grid[head][n, n - 1]) for n in range(2, len(tokens))]
            found = values[f"{name}_previous_mass"][layer, head]
            assert oracles.mean(each) == pytest.approx(found, abs=1e-4), (name, layer, head)
    best = {
        i for each in (p, q) for i in sorted(range(293), key=lambda i: -each[-1][i])[:CANDIDATES]
    }
    chosen = result.coordinates["candidate"].tolist()
    assert sorted(best, key=lambda i: -p[-1][i]) == chosen
    for name, last in (("clean_probability", p[-1]), ("changed_probability", q[-1])):
        np.testing.assert_allclose(values[name], [last[i] for i in chosen], atol=1e-4)
    assert subject.decode(chosen) == result.words("candidates")
    assert float(values["mean_kl"]) > 1e-3
    assert ((0, 2), (2, 2)) == (steps[0], steps[-1])


@pytest.mark.parametrize(
    "params",
    [
        {"change": "average", "group": 1},
        {"change": "average", "group": 1, "layer": 1},
        {"change": "blind", "every": 24},
    ],
)
def test_identity(subjects, streams, params):
    """Groups of 1, and no position to blind (24 tokens): every change is exactly 0."""
    params = InterventionParams(text=PROMPT, layers="0-2", **params)
    values = Intervention().perform(subjects["gpt2"], streams, params, quiet).values
    names = ("loss_change", "kl", "last_kl", "mean_kl", "difference", "previous_mass_change")
    assert not any(np.any(values[name]) for name in names)
    np.testing.assert_array_equal(values["clean_probability"], values["changed_probability"])


@pytest.mark.parametrize("moves", ["previous>The, previous>The", "5>2, 5>2, 5>3"])
def test_rows_still_add_up(subjects, moves):
    params = InterventionParams(text=PROMPT, change="move", moves=moves, head="L1H2")
    changed = Intervention().perform(subjects["gpt2"], {}, params, quiet).values["changed"]
    np.testing.assert_allclose(changed.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("case", BAD)
def test_bad_requests(subjects, streams, case):
    name, params, words = BAD[case]
    with refused(words):
        Intervention().perform(
            subjects[name], streams, InterventionParams(text=PROMPT, **params), quiet
        )


def test_prompt_of_one_token(model_dirs):
    subject = subject_of(model_dirs["gpt2"], "a", start_token=False)
    with refused("two tokens or more"):
        Intervention().perform(subject, {}, InterventionParams(text="a", change="remove"), quiet)
