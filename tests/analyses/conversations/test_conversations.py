"""Attention in conversations: by hand, by plain loops, and where the answer is known."""

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import poskernel_core as pk
from poskernel_core.analyses.conversations.experiment import (
    KEY_CLASSES,
    QUERY_CLASSES,
    classified,
    shares,
)
from poskernel_core.analyses.views import finding_of
from poskernel_core.api import build_request
from poskernel_core.common.errors import BadRequest, PosKernelError
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.data.conversations import as_text, conversations
from poskernel_core.engine.plan import make_plan
from poskernel_core.models.catalog import locate
from poskernel_core.models.chat import Rendered
from poskernel_core.models.curated import BUNDLED_MODELS
from poskernel_core.models.tokenizers import load_tokenizer
from tests.support.builders import ARCHITECTURES
from tests.support.builders.chat import TEMPLATE, with_template
from tests.support.builders.sinks import one_cause
from tests.support.near_worker import command_line_here

TURNS = [
    {"role": "user", "content": "the sea shells"},
    {"role": "assistant", "content": " positions, and heads"},
    {"role": "user", "content": "I'm sure"},
]


@pytest.fixture(scope="module")
def talking(tmp_path_factory):
    """Models with a chat template: full attention, shared keys in a window, no heads, long."""
    from tests.support.builders.families import FAMILY_MODELS

    root = tmp_path_factory.mktemp("talking")
    builds = {name: ARCHITECTURES[name] for name in ("gpt2", "mistral")}
    builds["lfm2"] = FAMILY_MODELS["lfm2"].build
    shutil.copytree(BUNDLED_MODELS["demo-gpt2"], root / "long")
    found = {name: with_template(build(root / name)) for name, build in builds.items()}
    return found | {"long": with_template(root / "long")}


def by_loops(name, window):
    """Shares and counts of one conversation, token by token, from transformers' own attention."""
    tokenizer = AutoTokenizer.from_pretrained(name)
    text = tokenizer.apply_chat_template(TURNS, tokenize=False)
    ids, classes = [], []
    for turn in TURNS:
        for part, kind in (
            (f"<|endoftext|>{turn['role']}:", "template"), (turn["content"], turn["role"]),
            ("\n", "template"),
        ):  # fmt: skip
            new = tokenizer(part, add_special_tokens=False)["input_ids"]
            first = ["first of a turn"] if kind != "template" else [kind]
            ids += new
            classes += first + [kind] * (len(new) - 1)
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids
    classes[0] = "first key"
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager").eval()
    with torch.no_grad():
        layers = model(torch.tensor([ids]), output_attentions=True).attentions
    found = {}
    for query_class in QUERY_CLASSES:
        for key_class in KEY_CLASSES:
            given, seen = [], []
            for query, own in enumerate(classes):
                if own != query_class:
                    continue
                keys = [key for key in range(query + 1) if classes[key] == key_class]
                low = 0 if window is None else max(0, query - window + 1)
                given.append([
                    [sum(float(head[query, key]) for key in keys) for head in layer[0]]
                    for layer in layers if layer is not None
                ])  # fmt: skip
                seen.append(sum(key >= low for key in keys) / (query + 1 - low))
            found[query_class, key_class] = np.mean(given, axis=0), np.mean(seen)
    return classes, found


@pytest.mark.parametrize(("kind", "window"), [("gpt2", None), ("mistral", 7)])
def test_the_same_by_plain_loops(talking, engine, near_workers, kind, window):
    result = pk.show("conversations", talking[kind], engine=engine, params={"text": TURNS})
    classes, found = by_loops(talking[kind], window)
    assert classes == result.words("classes")
    for (query_class, key_class), (given, seen) in found.items():
        at = QUERY_CLASSES.index(query_class), KEY_CLASSES.index(key_class)
        np.testing.assert_allclose(result.values["attention"][..., *at], given, atol=1e-5)
        np.testing.assert_allclose(result.values["visible_share"][..., *at], seen, atol=1e-12)
    said = [each for each in classes if each not in ("template", "first key")]
    counts = {each: said.count(each) for each in {*said}}
    expected = sum(
        counts[each] * found[each, "template"][0] for each in counts
    ) / len(said)  # fmt: skip
    np.testing.assert_allclose(result.values["template_share"], expected, atol=1e-5)
    assert "text" not in result.provenance["errors"]


def test_shares_by_hand():
    """One head: three queries of the user, none of the assistant."""
    sums, visible = np.zeros((1, 1, 4, 5)), np.full((1, 4, 5), 0.5)
    sums[0, 0, 1] = [1.5, 0.3, 0, 0.6, 0.6]
    sums[0, 0, 3] = [0.5, 0, 0, 0.25, 0.25]
    found = shares(sums, visible, np.array([2.0, 3.0, 0.0, 1.0]))
    np.testing.assert_allclose(found["attention"][0, 0, 1], [0.5, 0.1, 0, 0.2, 0.2])
    assert np.isnan(found["attention"][0, 0, 2]).all()
    np.testing.assert_allclose(found["template_share"], [[(1.5 + 0.5) / 4]])
    np.testing.assert_allclose(found["template_visible_share"], [(0.5 * 3) / 4])


@pytest.mark.parametrize("kind", ["gpt2", "long"])
def test_shares_add_up_with_errors_of_conversations(talking, engine, near_workers, kind):
    """Over the plays, cut at the context; each value lies in its interval."""
    result = pk.show(
        "conversations", talking[kind], engine=engine, context=None if kind == "gpt2" else 150
    )
    assert "conversations" == result.provenance["errors"]
    assert (30, 10) == (result.provenance["windows"], result.groups)
    for name in ("attention", "visible_share"):
        rows = (result.plug_ins.get(name, result.values[name])).sum(axis=-1)
        np.testing.assert_allclose(rows[np.isfinite(rows)], 1, atol=1e-5)
    error = result.errors["template_share"]
    assert ((error > 0) & (error < 0.1)).all()
    assert (result.lows["template_share"] < result.values["template_share"]).all()
    head = result.select(layer=1, head=2)
    assert "In conversations L1H2 gives" in finding_of(head)


def test_errors_leave_out_groups_of_conversations(talking, tmp_path, engine, near_workers):
    """Twenty of a file, two in each of ten groups: the same from each by itself."""
    names, several = ("the", "sea", "heads", "that"), []
    for number in range(20):
        more = " ".join(names[number % 3 :])
        several.append([{"role": "user", "content": f"{more} {number}"}, TURNS[1]])
    file = tmp_path / "chat.jsonl"
    file.write_text("\n".join(json.dumps({"messages": each}) for each in several))
    asked = {"corpus": str(file), "engine": engine}
    result = pk.show("conversations", talking["gpt2"], **asked)
    shares, counts = [], []
    for turns in conversations(CorpusSpec(name=str(file)), 0, 20):
        text = [{"role": role, "content": content} for role, content in turns]
        one = pk.show("conversations", talking["gpt2"], engine=engine, params={"text": text})
        classes = one.words("classes")
        counts.append(sum(each not in ("template", "first key") for each in classes))
        shares.append(one.values["template_share"] * counts[-1])
    without = []
    for group in range(10):
        kept = [place for place in range(20) if place % 10 != group]
        total = sum(counts[place] for place in kept)
        without.append(sum(shares[place] for place in kept) / total)
    expected = np.sqrt(9 * np.var(without, axis=0))
    np.testing.assert_allclose(result.errors["template_share"], expected, rtol=1e-5)
    other = pk.show("conversations", talking["gpt2"], seed=3, **asked)
    assert not np.array_equal(other.errors["template_share"], result.errors["template_share"])


def test_layers_without_heads_have_no_value(talking, engine, near_workers):
    result = pk.show("conversations", talking["lfm2"], engine=engine, params={"text": TURNS})
    shares = result.values["template_share"]
    assert np.isnan(shares[[0, 2]]).all()
    assert np.isfinite(shares[1]).all()


def test_heads_of_a_known_kind(tmp_path, engine, near_workers):
    """One attends to start tokens, of which each turn begins with one; one to all alike."""
    name = with_template(one_cause(tmp_path / "sink"))
    turns = TURNS[:2]
    result = pk.show("conversations", name, engine=engine, params={"text": turns})
    tokens, classes = result.words("tokens"), result.words("classes")
    starts = [place for place, each in enumerate(tokens) if each == "<|endoftext|>"]
    assert [0, starts[1]] == starts
    said = [n for n, each in enumerate(classes) if each not in ("template", "first key")]
    expected = np.mean([0.0 if n < starts[1] else 0.5 for n in said])
    assert expected == pytest.approx(result.values["template_share"][0, 1], abs=1e-3)
    even = result.values["template_visible_share"][0]
    assert even == pytest.approx(result.values["template_share"][0, 2], abs=1e-5)
    first = result.values["attention"][0, 0, :, KEY_CLASSES.index("first key")]
    assert first[0] == pytest.approx(1, abs=1e-3)  # position 0 is always the first key


def test_a_token_belongs_to_the_part_in_which_it_begins():
    """The tokenizer joins what the template ends with and what is said."""
    tokenizer = load_tokenizer(locate("demo-gpt2"))
    text = "x the house. the king"
    said = ((1, 11, "user"), (12, len(text), "system"))
    ids, classes = classified(tokenizer, Rendered(text, said))
    assert ids == tokenizer.encode(text)
    words = dict(zip(tokenizer.decode_each(ids), classes, strict=True))
    assert KEY_CLASSES.index("first of a turn") == classes[1]
    assert KEY_CLASSES.index("user") == words[" house"]
    assert KEY_CLASSES.index("template") == words[" king"]  # of a system message


def test_the_plays_and_their_groups():
    """Conversations of a piece are in one group, of alternating roles, in an order by seed."""
    found = conversations(CorpusSpec(), 0, 1000)
    assert len(found) % 10 == 0
    assert len(found) >= 30
    for turns in found:
        assert ["user", "assistant"] * 4 == [role for role, _ in turns]
    assert found[:10] == conversations(CorpusSpec(), 0, 19)
    assert found != conversations(CorpusSpec(), 1, 1000)


@pytest.mark.parametrize("form", ["lines", "lists", "list", "one"])
def test_files_of_messages(form, talking, tmp_path, engine, near_workers):
    """JSON lines of objects or of lists, a list of conversations, and one list of turns."""
    several = [TURNS, TURNS[:2], TURNS[1:]]
    texts = {
        "lines": "\n".join(json.dumps({"messages": each}) for each in several),
        "lists": "\n\n".join(map(json.dumps, several)),
        "list": json.dumps([{"messages": each} for each in several]),
        "one": json.dumps(TURNS),
    }
    file = tmp_path / f"chat.{'jsonl' if form.startswith('li') and form != 'list' else 'json'}"
    file.write_text(texts[form])
    result = pk.show("conversations", talking["gpt2"], corpus=str(file), engine=engine)
    assert (1 if form == "one" else 3) == result.provenance["windows"]
    if form != "one":
        assert 3 == result.groups
    with pytest.raises(PosKernelError, match="holds conversations, which only"):
        pk.show("etc", talking["gpt2"], corpus=str(file), engine=engine, windows=3)


def test_a_line_of_a_file_ends_as_json_lines_do(tmp_path):
    """Unicode has other ends of lines, which may stand in a text."""
    file = tmp_path / "chat.jsonl"
    said = "one\u2028two\x85three"
    line = json.dumps([{"role": "user", "content": said}], ensure_ascii=False)
    file.write_bytes(f"\r\n{line}\r\n{line}\n".encode())
    found = conversations(CorpusSpec(name=str(file)), 0, 9)
    assert [(("user", said),)] * 2 == found


REFUSED = [
    ({"model": "demo-gpt2"}, "'demo-gpt2' has no chat template"),
    ({"corpus": "bible"}, "The corpus 'bible' has no conversations: choose 'sample'"),
    ({"params": {"text": []}}, "expected a list of turns such as"),
    ({"params": {"text": "hello"}}, "expected a list of turns such as .* got 'hello'"),
    ({"params": {"text": [{"role": "bot", "content": "x"}]}}, "a 'role' .* as turn 1"),
    ({"params": {"text": [{"role": "user", "content": 3}]}}, "a text as 'content', .* turn 1"),
    ({"params": {"text": [*TURNS] * 20}}, "The conversation has .* tokens .* context holds 41"),
]


@pytest.mark.parametrize(("more", "told"), REFUSED)
def test_what_is_refused(more, told, talking, engine, near_workers):
    asked = {"model": talking["gpt2"], "engine": engine} | more
    with pytest.raises(PosKernelError, match=told) as refused:
        pk.show("conversations", **asked)
    assert "\n" not in str(refused.value)


def test_the_day_is_part_of_the_key_where_a_template_writes_it(tmp_path, talking):
    """And of the answer; elsewhere nothing changes."""
    shutil.copytree(talking["gpt2"], tmp_path / "dated")
    dated = with_template(tmp_path / "dated", "{{ strftime_now('%d %B') }}" + TEMPLATE)

    def key(name, **params):
        return make_plan(build_request("conversations", name, params=params)[0]).key

    assert key(talking["gpt2"]) == key(talking["gpt2"], date="1999-12-31")
    assert key(dated) == key(dated, date="2024-07-26") != key(dated, date="1999-12-31")
    plan = make_plan(build_request("conversations", talking["gpt2"])[0])
    assert "date" not in plan.request.params
    for wrong in ("yesterday", "2024-02-30"):
        with pytest.raises(BadRequest, match="expected a day such as 2024-07-26"):
            key(dated, date=wrong)


def test_the_day_stands_in_the_answer(tmp_path, talking, engine, near_workers):
    shutil.copytree(talking["gpt2"], tmp_path / "dated")
    dated = with_template(tmp_path / "dated", "{{ strftime_now('%Y') }}" + TEMPLATE)
    one = {"text": TURNS[:2]}
    usual = pk.show("conversations", dated, engine=engine, params=one)
    other = pk.show("conversations", dated, engine=engine, params=one | {"date": "1999-12-31"})

    assert "2024-07-26" == usual.provenance["template_date"] == usual.params["date"]
    assert str(usual.texts["written"]).startswith("2024")
    assert str(other.texts["written"]).startswith("1999")
    plain = pk.show("conversations", talking["gpt2"], engine=engine, params=one)
    assert "template_date" not in plain.provenance


def test_a_tokenizer_of_another_model_is_refused(tmp_path, engine, near_workers):
    """Its template is read, but its ids are not the model's."""
    folder = tmp_path / "foreign"
    shutil.copytree(BUNDLED_MODELS["demo-gpt2"], folder)
    name = with_template(ARCHITECTURES["gpt2"](tmp_path / "tiny"))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / file, tmp_path / "tiny" / file)
    with_template(tmp_path / "tiny")
    with pytest.raises(PosKernelError, match="gives ids beyond the vocabulary of the model"):
        pk.show("conversations", name, engine=engine, params={"text": TURNS})


def test_a_damaged_line_is_named(talking, tmp_path, engine, near_workers):
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"messages": TURNS}) + '\n{"messages": 3}\n')
    with pytest.raises(PosKernelError, match=r"'chat.jsonl' cannot be read .*line 2: expected a"):
        pk.show("conversations", talking["gpt2"], corpus=str(file), engine=engine)


def test_own_text_as_turns(talking, tmp_path, engine, near_workers):
    """A list in Python, a file on the command line, and typed paragraphs: the same tokens."""
    name, file = talking["gpt2"], tmp_path / "turns.json"
    file.write_text(json.dumps(TURNS))
    whole = pk.show("conversations", name, engine=engine, params={"text": TURNS})
    shown = pk.show("own-text", name, engine=engine, windows=10, params={"text": TURNS})
    assert whole.words("tokens") == shown.words("tokens")
    told = command_line_here(
        tmp_path / "cache", "show", "own-text", name, "--text", str(file), "--windows", "10",
        "--json",
    )  # fmt: skip
    assert whole.words("tokens") == json.loads(told)["texts"]["tokens"]
    typed = "User: the sea shells\nassistant:  positions, and heads\nuser:I'm sure"
    assert json.loads(as_text(typed))[0] == TURNS[0]
    assert 3 == len(json.loads(as_text(typed)))
    with pytest.raises(PosKernelError, match="'demo-gpt2' has no chat template"):
        pk.show("own-text", "demo-gpt2", engine=engine, params={"text": TURNS})
