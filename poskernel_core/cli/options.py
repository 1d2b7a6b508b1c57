"""The options that commands share: what describes a run, and what is shown of a result."""

from __future__ import annotations

import re
import typing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from poskernel_core.analyses import Question
from poskernel_core.analyses.definitions import limits_of
from poskernel_core.cli.grammar import Model, Option, Value, either
from poskernel_core.cli.parameters import OWN_SECTION, default_of, own_option
from poskernel_core.common import settings
from poskernel_core.common.shards import MOST_SHARDS, Shard
from poskernel_core.common.specs import (
    DEFAULT_CONTEXT,
    DEFAULT_QUERY,
    DEFAULT_TEXTS,
    FEWEST_PATTERNS,
    CorpusSpec,
    Dtype,
    Execution,
    is_device,
)
from poskernel_core.models.schedules import SCHEDULES

__all__ = [
    "FILE",
    "FOLDERS",
    "FOLDER_RUN",
    "Run",
    "export_options",
    "ledger_options",
    "merge_options",
    "precompute_options",
    "revision_option",
    "run_options",
    "show_options",
]

MOST = 10**9
"""Largest number that an option of a run takes."""

RUN_SECTION = "The run"
RESULT = "The result"
FOLDER_RUN = "The run that a folder is about"
FOLDERS = {
    "gallery": "write a static site into this folder: the grid, a page for each head, no server",
    "hub_card": "write a data set for the hub into this folder: arrays, a table and a card",
    "headvis": "write the files that HeadVis shows heads from into this folder",
}
"""What ``export`` writes instead of an archive, by the option that names the folder."""
TRAINING = "Over training"
MACHINES = "Several machines"
FILE = Value("the name of a file", Path)
TEXT = Value("a text", str)


@dataclass(frozen=True)
class Run:
    """What the options of a run hold, by their names in Python."""

    model: str
    revision: str | None
    corpus: str
    corpus_item: str | None
    corpus_revision: str | None
    windows: int | None
    pattern_windows: int | None
    context: int | None
    no_start_token: bool
    seed: int
    dtype: Dtype
    device: str | None
    batch: int | None

    def fields(self) -> dict[str, Any]:
        """Return the fields of a run, as ``build_request`` takes them."""
        corpus = CorpusSpec(name=self.corpus, item=self.corpus_item, revision=self.corpus_revision)
        return {
            "revision": self.revision,
            "corpus": corpus,
            "context": self.context,
            "windows": self.windows,
            "pattern_windows": self.pattern_windows,
            "start_token": not self.no_start_token,
            "seed": self.seed,
            "dtype": self.dtype,
        }

    def execution(self) -> Execution:
        """Return where and how the run is carried out."""
        return Execution(
            device=self.device or settings.device(),
            batch=self.batch,
            all_windows=self.windows is not None,
        )


def run_options() -> list[click.Parameter]:
    """Return what describes a run and where it is carried out: the fields of :class:`Run`."""
    dtypes = typing.get_args(Dtype)
    text, option = partial(_option, metavar="TEXT", type=TEXT), _option
    return [
        Model(),
        revision_option(),
        text("--corpus", "name, or .txt, .jsonl, .parquet or .npy file", default="sample"),
        text("--corpus-item", "one named text of the corpus"),
        text("--corpus-revision", "revision of a hub corpus"),
        _number("--windows", "windows of text", f"default: up to {DEFAULT_TEXTS:,}"),
        _number(
            "--pattern-windows",
            "first windows whose attention is formed",
            "default: all; fewer are faster",
            least=FEWEST_PATTERNS,
        ),
        _number("--context", "tokens per window", f"default: up to {DEFAULT_CONTEXT:,}"),
        option("--no-start-token", "no start token first", is_flag=True),
        _number("--seed", "order of documents, random tokens", least=0, default="0"),
        option(
            "--dtype",
            "precision of the pass",
            default="float32",
            metavar="|".join(dtypes),
            type=Value(either(dtypes), partial(_one_of, dtypes)),
        ),
        option(
            "--device",
            "auto, cpu, cuda, cuda:1 or mps",
            "default: the variable POSKERNEL_DEVICE, else auto",
            metavar="TEXT",
            type=Value("a device such as auto, cpu, cuda or cuda:1", _device),
        ),
        _number("--batch", "windows per forward pass", "default: as many as fit well"),
    ]


def revision_option() -> Option:
    """Return the option of a model's revision."""
    return _option("--revision", "hub revision or training checkpoint", metavar="TEXT", type=TEXT)


def export_options() -> list[click.Parameter]:
    """Return the file, or the folders and the options of the run that they are about."""
    model, revision, *others = run_options()
    for option in others:
        assert isinstance(option, Option)
        option.section = FOLDER_RUN
    return [
        model,
        click.Argument(["file"], required=False, type=FILE, help="the archive"),
        *(
            Option(
                f"--{name.replace('_', '-')}",
                section=RESULT,
                what=what,
                metavar="FOLDER",
                type=Value("the name of a folder", Path),
            )
            for name, what in FOLDERS.items()
        ),
        Option(
            "--view",
            section=RESULT,
            what="write results alone, small, for a server that has not the weights "
            "(POSKERNEL_MODELS, serve --model)",
            is_flag=True,
        ),
        revision,
        *others,
    ]


def precompute_options() -> list[click.Parameter]:
    """Return what more is computed, and the options of a run."""
    return [
        _experiments(),
        Option(
            "--revisions",
            section=TRAINING,
            what="checkpoints of its training, one after another: revisions between commas, all, "
            f"log (those nearest to powers of two), or a known schedule ({either([*SCHEDULES])})",
            metavar="LIST",
            type=TEXT,
        ),
        Option(
            "--remove-weights",
            section=TRAINING,
            what="remove the weights of each checkpoint again that this command has downloaded",
            is_flag=True,
        ),
        *_sharing_options(),
        *run_options(),
    ]


def _sharing_options() -> list[click.Parameter]:
    """Return how several devices or machines share the work."""
    option = partial(Option, section=MACHINES)
    return [
        option(
            "--shard",
            what="compute this one shard alone, such as 0/8, the first of eight; 'merge' puts them "
            "together",
            metavar="R/N",
            type=Value("a shard R/N such as 0/8 (R from 0 to N - 1)", Shard.read),
        ),
        option(
            "--shard-files",
            what="write each shard to a file in this folder",
            facts=("for machines without a common store",),
            metavar="FOLDER",
            type=FILE,
        ),
        _shards_option("default: one for each device or worker"),
        option(
            "--devices",
            what="devices of this machine that share the work, such as cuda:0,cuda:1",
            metavar="LIST",
            type=Value("devices between commas, such as cuda:0,cuda:1", _devices),
        ),
        option(
            "--cluster",
            what="share the work among the workers of this Dask scheduler",
            facts=("needs the extra 'cluster'",),
            metavar="ADDRESS",
            type=TEXT,
        ),
    ]


def _shards_option(*facts: str, **more: Any) -> Option:
    kind = Value(f"a whole number (1 to {MOST_SHARDS:,})", _shard_count)
    what = "how many shards the work is cut into"
    return Option(
        "--shards", section=MACHINES, what=what, facts=facts, metavar="N", type=kind, **more
    )


def merge_options() -> list[click.Parameter]:
    """Return where shards are, how many, and the options of the run that they are of."""
    model, *others = run_options()
    return [
        model,
        click.Argument(
            ["sources"],
            type=FILE,
            nargs=-1,
            help="files, folders of files or stores that hold shards",
        ),
        _shards_option(required=True),
        _experiments(),
        *others,
    ]


def _experiments() -> Option:
    what = "also the experiments on random tokens, as shown first"
    return Option("--experiments", section=RESULT, what=what, is_flag=True)


def show_options(question: Question[Any]) -> list[click.Parameter]:
    """Return all options of ``show`` for an analysis: its own, of the result, of the run.

    The query position and the head are options of every analysis: its own parameters, or what is
    selected from its result.
    """
    chosen: dict[str, click.Parameter] = {"query": _query(question), "head": _head(question)}
    own = [
        chosen.pop(name) if name in chosen else own_option(question, name)
        for name in question.params.model_fields
    ]
    return [
        *own,
        *chosen.values(),
        _json(),
        _option("--npz", "write arrays", section=RESULT, metavar="FILE", type=FILE),
        _option("--html", "write a stand-alone figure", section=RESULT, metavar="FILE", type=FILE),
        *run_options(),
    ]


def ledger_options() -> list[click.Parameter]:
    """Return where the published figures come from, the output, and the options of a run."""
    return [
        Option(
            "--as",
            "published_as",
            section=RESULT,
            metavar="NAME",
            type=TEXT,
            what="whose figures: for a local copy of a model that was published under another name",
        ),
        _option(
            "--figures",
            "published figures of your own (JSON)",
            section=RESULT,
            metavar="FILE",
            type=FILE,
        ),
        _json(),
        *run_options(),
    ]


def _option(name: str, what: str, *facts: str, section: str = RUN_SECTION, **more: Any) -> Option:
    default = f"default: {more['default']}" if "default" in more else ""
    return Option(name, section=section, what=what, facts=(default, *facts), **more)


def _number(name: str, what: str, *facts: str, least: int = 1, **more: Any) -> Option:
    kind = Value(f"a whole number ({least:,} to {MOST:,})", partial(_whole, least))
    return _option(name, what, *facts, f"at least {least}", metavar="N", type=kind, **more)


def _json() -> Option:
    return Option("--json", "as_json", section=RESULT, what="print JSON", is_flag=True)


def _query(question: Question[Any]) -> Option:
    """Return the option of the query position; what the context allows is checked later."""
    kind = Value("a whole number", partial(_whole, -MOST))
    field = question.params.model_fields.get("query")
    if field is None:
        return _option(
            "--query",
            "one query position n; one that is not recorded by default needs a pass",
            "default: all recorded ones",
            "0 to the last position",
            section=RESULT,
            metavar="N",
            type=kind,
        )
    default = f"default: {DEFAULT_QUERY}, in a shorter context the last that can be read"
    return _option(
        "--query",
        field.description or "",
        default,
        limits_of(field),
        section=OWN_SECTION,
        metavar="N",
        type=kind,
    )


def _head(question: Question[Any]) -> Option:
    """Return the option of the head: a parameter of the analysis, or what is selected."""
    field = question.params.model_fields.get("head")
    section, what, default, required = (
        (RESULT, "one head, such as L0H3", "default: all", False)
        if field is None
        else (OWN_SECTION, field.description or "", default_of(field), field.is_required())
    )
    return Option(
        "--head",
        section=section,
        what=what,
        facts=(default,),
        metavar="HEAD",
        type=TEXT,
        required=required,
    )


def _whole(least: int, text: str) -> int:
    """Return a whole number written in the digits 0 to 9."""
    number = int(text) if re.fullmatch("-?[0-9]{1,10}", text) else None
    if number is None or not least <= number <= MOST:
        raise ValueError(text)
    return number


def _one_of(words: tuple[str, ...], text: str) -> str:
    if text not in words:
        raise ValueError(text)
    return text


def _device(text: str) -> str:
    if not is_device(text):
        raise ValueError(text)
    return text


def _devices(text: str) -> tuple[str, ...]:
    return tuple(_device(name.strip()) for name in text.split(","))


def _shard_count(text: str) -> int:
    number = _whole(1, text)
    if number > MOST_SHARDS:
        raise ValueError(text)
    return number
