"""Positions averaged in groups: losses in plain loops; and experiments by way of a worker."""

import numpy as np
import pytest

from poskernel_core import Execution
from poskernel_core.analyses.helix.formulas import GROUP_SIZES
from poskernel_core.analyses.interventions.spec import (
    Averaging,
    AveragingParams,
    Intervention,
    InterventionParams,
)
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.passes.prepare import prepare
from tests.analyses.interventions.test_intervention import quiet, subject_of
from tests.support import builders, oracles, plain_gpt2
from tests.support import oracles_positions as op
from tests.support import oracles_random as oracle
from tests.support.refusals import refused

TEXTS, CONTEXT = 3, 41
PROMPT = "The previous token, and the token before it"
SIZES = (1, *GROUP_SIZES)


def texts_of(path, start_token=True):
    windows = builders.random_ids(TEXTS, CONTEXT, seed=13).numpy()
    windows[:, 0] = builders.START
    return subject_of(path, windows=windows, start_token=start_token)


def plain(path, tokens, group, layer, rows, start, keep):
    step = np.zeros_like(rows)
    step[keep:] = np.array(op.averaged_positions(rows[keep:].tolist(), group)) - rows[keep:]
    if layer is None:
        edits = plain_gpt2.Edits(positions=lambda x: x + step)
    else:
        edits = plain_gpt2.Edits(stream=lambda at, x: x + step if at == layer else x)
    run = plain_gpt2.run(path, tokens, edits)
    losses = []
    for n in range(1, len(tokens)):
        losses.append(op.nll(oracles.softmax(run.logits[n - 1].tolist()), tokens[n]))
    masses = [
        [oracles.mean([float(A[n, n - 1]) for n in range(1 + start, len(tokens))]) for A in heads]
        for heads in run.patterns
    ]
    return {"loss": oracles.mean(losses), "previous_mass": np.array(masses)}


@pytest.mark.parametrize(("layer", "start", "keep"), [(None, False, 2), (1, True, 3)])
def test_averaging(model_dirs, streams, layer, start, keep):
    path, subject = model_dirs["gpt2"], texts_of(model_dirs["gpt2"], start)
    model = builders.hf_eager_model(path)
    rows = model.transformer.wpe.weight.detach().numpy().astype(float)
    if layer is not None:
        rows = streams["repeated"].layer(layer)["mean_residuals"].astype(float)
    params = AveragingParams(layer=layer, keep=keep, loss_windows=TEXTS)

    result = Averaging().perform(subject, streams, params, quiet)

    clean = None
    for place, group in enumerate(SIZES):
        texts = [plain(path, w.tolist(), group, layer, rows, int(start), keep)
                 for w in subject.windows]  # fmt: skip
        each = {name: [one[name] for one in texts] for name in texts[0]}
        clean = each["loss"] if clean is None else clean
        each["loss_change"] = np.subtract(each["loss"], clean)
        for name, column in each.items():
            mean, error = oracle.mean_and_error(column)
            np.testing.assert_allclose(result.values[name][place], mean, atol=2e-4)
            np.testing.assert_allclose(result.errors[name][place], error, atol=2e-4)
    assert list(SIZES) == result.coordinates["group"].tolist()
    assert (0, 0) == (result.values["loss_change"][0], result.errors["loss_change"][0])
    assert np.abs(result.values["loss_change"][1:]).min() > 1e-3


def test_text_longer_than_the_context(model_dirs):
    located = catalog.locate(str(model_dirs["gpt2"]))
    run, tokenizer = describe_run(str(model_dirs["gpt2"])), load_tokenizer(located)
    fits = "?" * (CONTEXT - 1)

    def windows_of(text):
        canonical = Intervention().canonical(run, InterventionParams(text=text))
        return prepare(canonical, Execution(), located, tokenizer)[0]

    assert (1, CONTEXT) == windows_of(fits).shape
    with refused("the context holds 41: shorten it by about 2"):
        windows_of(f"{fits}??")
    with refused("Expected a text, got none"):
        windows_of("  ")


def request(path, analysis, corpus="bible", windows=7, **params):
    """A request as a page makes it, with whatever corpus was chosen there."""
    run = describe_run(str(path), corpus=CorpusSpec(name=corpus), windows=windows, query=windows)
    return Request(analysis=analysis, run=run, params=params)


@pytest.mark.usefixtures("near_workers")
def test_engine(engine, model_dirs):
    path, other = model_dirs["gpt2"], model_dirs["llama"]
    for asked in (request(path, "intervention", text=PROMPT), request(path, "averaging")):
        assert not make_plan(asked).needs
    whole = {"text": PROMPT, "layer": 1, "group": 5}
    result = engine.result(request(path, "intervention", **whole), 60)
    again = engine.cached(request(path, "intervention", "sample", 11, **whole))
    np.testing.assert_array_equal(result.values["kl"], again.values["kl"])
    assert (len(again.words("tokens")),) == again.values["kl"].shape
    assert builders.START_TOKEN == again.words("tokens")[0]
    table = engine.result(request(path, "averaging", layer=2, loss_windows=3), 60)
    assert 0 == table.values["loss_change"][0]
    cases = [
        (request(other, "helix", tokens=5), "draws no helix"),
        (request(other, "intervention", text=PROMPT), "rotary positions"),
        (request(path, "intervention", text=PROMPT, head="L9H0"), "L0H0 to L2H4"),
    ]
    for asked, words in cases:
        with refused(words):
            engine.result(asked, 60)
