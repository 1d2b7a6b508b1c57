"""``pk.attach``: ask every question of a model that is an object in this process.

A computation runs in this process, in the threads of an ordinary worker, on a twin of the object
(:mod:`poskernel_core.objects.twin`). Its identity is computed anew for each question, so that a
step of training makes another model.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import tokenizers
import torch

from poskernel_core import api, server
from poskernel_core.common.errors import BadRequest, PosKernelError, UnsupportedModel
from poskernel_core.common.result import Result
from poskernel_core.common.specs import DEFAULT_TEXTS, CorpusSpec, ModelSpec, RunSpec, brief, digest
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.worker import Worker, WorkerHere
from poskernel_core.export.notebook import View
from poskernel_core.forward.configuration import CANNOT_RUN, refusing
from poskernel_core.forward.identity import identity, own_hooks
from poskernel_core.forward.loaded import LoadedModel, untouched
from poskernel_core.forward.loading import Placement, hooked, probe_positions
from poskernel_core.forward.memory import in_float32
from poskernel_core.forward.precision import neutral
from poskernel_core.forward.proof import TOLERANCE, made_up, prove
from poskernel_core.models import catalog
from poskernel_core.models.attached import (
    change,
    describe,
    in_hand,
    model_of,
    note_identity,
    tokenizers_in_hand,
)
from poskernel_core.models.catalog import Located
from poskernel_core.models.configuration import read_geometry
from poskernel_core.models.positions import PositionUse, angles_by_length, keep_use
from poskernel_core.models.stored import Shown, stored_models
from poskernel_core.models.tokenizer_files import settle
from poskernel_core.models.tokenizers import Tokenizer, load_tokenizer
from poskernel_core.objects.twin import config_of, twin_of, unwrap
from poskernel_core.passes.worker_context import ModelCache, WorkerContext
from poskernel_core.storage.store import Store
from poskernel_core.storage.view import about


def attach(model: Any, tokenizer: Any = None, name: str | None = None) -> Lab:
    """Return a lab for a model in this process; the model itself is never changed.

    The attention that PosKernel computes is compared with the model's own at once. 16-bit weights
    are read as float32, a part at a time, as those of a directory are.

    Args:
        model: a ``PreTrainedModel``, a PEFT model or a ``TransformerBridge``; a compiled one or
            one wrapped for DDP is unwrapped.
        tokenizer: its tokenizer, of transformers or of ``tokenizers`` (default: a bridge's own, or
            that of the directory or hub model that it was loaded from).
        name: its name in results and in the dashboard (default: from its directory or class).

    Raises:
        BadRequest: a name that is taken, or a tokenizer of another vocabulary.
        UnsupportedModel: its attention is not known, or differs from what we compute.
    """
    lab = Lab(model, tokenizer, name)
    for note in lab.notes:
        print(f"pk.attach: {note}.", file=sys.stderr)
    return lab


class Lab:
    """A model in this process, of which questions can be asked.

    Attributes:
        engine: computes in this process, while a question is answered.
        tokenizer: the model's tokenizer, if it has one.
        step: the step of a training run (``TrainingLog``), which names the model's version.
    """

    @neutral()
    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        name: str | None = None,
        step: int | None = None,
        like: Lab | None = None,
    ) -> None:
        self._inside, self._notes = unwrap(model)
        self._config = config_of(self._inside)
        self._name, self.step = _named(name, self._config), step
        self.tokenizer = self._find_tokenizer(tokenizer)
        self._lock = threading.RLock()
        self._loaded: LoadedModel | None = None
        self._twin: Any = None
        self._use: PositionUse | None = like._use if like else None
        self._now = self._look()
        if (known := self.model.name) != self._name:
            same = f"to the bit the same model as {known!r}, and so has its results and name"
            self._notes.append(same)
        if self._hooks:
            self._notes.append(f"hooks of yours take part: {'; '.join(self._hooks)}")
        self.engine = Engine(
            start=lambda store, hear: WorkerHere(store, hear, self._context(store))
        )
        self._forget()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was taken off the model, and what its results stand for."""
        return tuple(self._notes)

    @property
    def model(self) -> ModelSpec:
        """Name, revision and fingerprint at the last question."""
        return self._now.spec

    def __repr__(self) -> str:
        shape = self._now.geometry
        return (
            f"Lab of {self.model.name!r} ({self.model.revision or self.model.fingerprint[:8]}): "
            f"{shape.n_layers} layers of {shape.n_heads} heads, {shape.scheme} positions"
        )

    def show(self, analysis: str, **options: Any) -> Result:
        """Return a result, as :func:`poskernel_core.show` does of a model's name."""
        return api.show(analysis, self, **options)

    def view(self, analysis: str, **options: Any) -> View:
        """Return a result with its figure, as :func:`poskernel_core.view` does."""
        return api.view(analysis, self, **options)

    def precompute(self, **options: Any) -> list[str]:
        """Compute what the pages show first, as :func:`poskernel_core.precompute` does."""
        return api.precompute(self, **options)

    def serve(self, page: str = "", **query: Any) -> None:
        """Show a dashboard that computes with this model in this process, until interrupted.

        The cell blocks, so that nothing else uses the model meanwhile. Afterwards the dashboard
        shows what is stored.
        """
        with self.opened():
            ours, theirs = socket.socketpair()
            with ours, ours.makefile("w") as output, ours.makefile("r") as lines:
                here = {"model": self.model.name}
                with theirs:
                    dashboard = server.serve_lab(
                        theirs.fileno(), self.model.fingerprint, page, **{**here, **query}
                    )
                _display(dashboard)
                worker = Worker(self.engine.store, output, self._context(self.engine.store))
                try:
                    worker.serve(lines)
                except KeyboardInterrupt:
                    print("Interrupted: the dashboard shows what is stored.", file=sys.stderr)
                finally:
                    worker.stop()

    @contextmanager
    def opened(self) -> Iterator[api.Opened]:
        """Compute with the model as it is now; nothing of it is held afterwards."""
        with neutral(), self._lock:
            self._now = self._look()
            try:
                in_hand.add(self.model.fingerprint)
                tokenizers_in_hand[self.model.fingerprint] = self.tokenizer
                yield api.Opened(self.model, self.engine, self._show_first)
            finally:
                try:
                    self.engine.close()
                finally:
                    in_hand.discard(self.model.fingerprint)
                    tokenizers_in_hand.pop(self.model.fingerprint, None)
                    self._forget()

    def _forget(self) -> None:
        self._twin = self._loaded = None

    def _look(self) -> Located:
        self._config = config_of(self._inside)
        self._geometry = read_geometry(self._name, self._config)
        self._twin, self._loaded = twin_of(self._inside), None
        self._hooks = tuple(own_hooks(self._twin))
        with refusing(self._name, "The weights of {} cannot be read"):
            print_ = identity(self._twin, self._twin.config)
        if self.tokenizer is not None:
            print_ = digest([print_, self.tokenizer.digest()])
        located = None if self.step is not None else _known(print_)
        located = located or self._describe(print_)
        if type(self._inside).__name__ == "TransformerBridge":
            self.loaded(located)  # its hooks are not part of the identity
        return located

    def _describe(self, fingerprint: str) -> Located:
        geometry = self._geometry
        revision = fingerprint[:8] if self.step is None else f"step-{self.step}"
        angles = "by length" if angles_by_length(self._config) else None
        spec = ModelSpec(name=self._name, revision=revision, fingerprint=fingerprint, angles=angles)  # type: ignore[arg-type]
        located = Located(spec, None, self._config, geometry)
        if self.tokenizer is not None:
            _check_vocabulary(self.tokenizer, located)
        located = self.loaded(located).located
        word = " the" if self.tokenizer is None else self.tokenizer.usual_word()
        hooks = "; ".join(self._hooks)
        first_run = Shown(
            context=geometry.usual_context, windows=DEFAULT_TEXTS, dtype="float32",
            corpus=CorpusSpec(), start_token=True, queries=(), skips=(),
            step=geometry.usual_step(geometry.usual_context),
        )  # fmt: skip
        more = {
            "versions": {revision: {"fingerprint": fingerprint, "step": self.step}},
            "word": word,
            "note": f"Computed with hooks of the caller: {hooks}." if hooks else "",
        }
        describe({**about(located, first_run), "attached": more}, _files_of(self.tokenizer))
        if self.step is None:
            note_identity(fingerprint, spec)
        return catalog.locate(spec)

    def _show_first(self, run: RunSpec) -> None:
        kept, one_text = stored_models().get(self.model.name), run.corpus.text or run.corpus.item
        if kept is None or kept.attached is None or one_text is not None:
            return
        fields = run.model_dump(include={"context", "windows", "start_token", "dtype"})
        step = self._geometry.usual_step(run.context)
        first_run = Shown(**fields, corpus=run.corpus, queries=run.positions, skips=(), step=step)
        if first_run != kept.shown:
            change(self.model.name, shown=first_run.model_dump(mode="json"))

    def _context(self, store: Store) -> WorkerContext:
        return WorkerContext(store, _InHand(lab=self))

    def loaded(self, located: Located) -> LoadedModel:
        """Return the model ready to run; for one thread at a time.

        Its attention is proved (at the first step of a training run), and it is seen how it uses
        positions.
        """
        if self._loaded is not None:
            return self._loaded
        twin = self._twin
        with refusing(located.spec.name, CANNOT_RUN):
            in_float32(twin).__enter__()  # for as long as the twin lives
            model = hooked(located, twin, *_placed(twin))
            model.hooked_by = self._hooks
            if self._use is None or self.step is None:
                prove(model)
                self._use = probe_positions(model)
            keep_use(located.spec.fingerprint, self._use)
            model.located = located.probed(self._use)
            if type(self._inside).__name__ == "TransformerBridge":
                _check_bridge(self._inside, model)
        self._loaded = model
        return model

    def _find_tokenizer(self, given: Any) -> Tokenizer | None:
        if given is None and type(self._inside).__name__ == "TransformerBridge":
            given = self._inside.tokenizer
        if given is None:
            source = getattr(self._inside, "name_or_path", "")
            with suppress(PosKernelError):
                return load_tokenizer(catalog.locate(source)) if source else None
            return None
        backend = getattr(given, "backend_tokenizer", given)
        if not isinstance(backend, tokenizers.Tokenizer):
            raise BadRequest(
                "Expected a tokenizer of transformers with a tokenizer.json, or one of the package "
                f"'tokenizers', got {brief(given)}."
            )
        copied = tokenizers.Tokenizer.from_str(backend.to_str())
        copied.no_truncation()
        copied.no_padding()
        copied.encode_special_tokens = (
            getattr(given, "split_special_tokens", False) or backend.encode_special_tokens
        )
        if dropout := settle(copied):
            self._notes.append(f"its tokenizer's dropout of {dropout:g} is off, as at inference")
        start = getattr(given, "bos_token", None) or getattr(given, "eos_token", None)
        return Tokenizer(self._name, copied, start)


@dataclass
class _InHand(ModelCache):
    """The models of a worker in this process: the lab's own, others as they are loaded."""

    lab: Lab = field(kw_only=True)

    def take(self, located: Located, device: str, dtype: str = "float32") -> LoadedModel:
        if located.spec.fingerprint != self.lab.model.fingerprint:
            return super().take(located, device, dtype)
        if dtype == "bfloat16":
            raise BadRequest(
                "An attached model is computed in float32, whatever its weights are in, because "
                "its weights must not change: leave the precision out."
            )
        loaded = self.lab.loaded(located)
        self._place_arithmetic(loaded.device, dtype)
        return loaded


def _known(fingerprint: str) -> Located | None:
    """Return the directory, hub model or attached model of an identity, if it is still that."""
    spec = model_of(fingerprint)
    with suppress(PosKernelError):
        if spec is not None and (located := catalog.locate(spec)).spec == spec:
            return located
    return None


def _named(name: str | None, config: dict[str, Any]) -> str:
    if name is None:
        source = str(config.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
        kind = str(config.get("model_type", "toy"))
        name = ("my-" + (re.sub(r"[^\w.+-]+", "-", source) or kind))[:40]
    if not isinstance(name, str) or not catalog.OWN_NAME.fullmatch(name):
        raise BadRequest(
            "Expected a name of letters, digits, '.', '-', '+' and '_' for the attached model, got "
            f"{brief(name)}."
        )
    if catalog.is_taken(name):
        raise BadRequest(f"{name!r} is the name of another model: choose a name of your own.")
    return name


def _files_of(tokenizer: Tokenizer | None) -> dict[str, str]:
    if tokenizer is None:
        return {}
    start = json.dumps({"bos_token": tokenizer.start_token})
    return {"tokenizer.json": tokenizer.backend.to_str(), "tokenizer_config.json": start}


def _check_vocabulary(tokenizer: Tokenizer, located: Located) -> None:
    highest, own = max(tokenizer.backend.get_vocab().values()), located.geometry.n_vocab
    if highest >= own:
        raise BadRequest(
            f"Expected a tokenizer for the {own:,} tokens of {located.spec.name!r}, got one whose "
            f"ids go up to {highest:,}: give the model's own."
        )


def _placed(twin: Any) -> tuple[torch.device, Placement | None]:
    """Return the device of a twin's passes, and which device has which part."""
    devices = dict.fromkeys(
        parameter.device for parameter in twin.parameters() if not parameter.is_meta
    )
    home = next(iter(devices), torch.device("cpu"))
    parts = getattr(twin, "hf_device_map", None) or {}
    if len({str(device) for device in parts.values()}) > 1 or any(
        p.is_meta for p in twin.parameters()
    ):
        return home, Placement(dict(parts), home)
    if len(devices) > 1:
        raise UnsupportedModel(
            f"The weights are on {' and '.join(map(str, devices))}, and accelerate did not put "
            "them there: load the model with device_map, or move it to one device."
        )
    return home, None


def _check_bridge(bridge: Any, model: LoadedModel) -> None:
    tokens = made_up(model)
    with untouched(bridge):  # it puts hooks on its parts whenever it runs
        theirs = bridge(tokens.to(model.device), return_type="logits").float()
    ours, largest = model.run(tokens), float(theirs.abs().max())
    halved = next(bridge.parameters()).dtype != torch.float32
    apart = float((ours - theirs).abs().max()) / max(largest, 1e-30)
    if not apart <= (0.05 if halved else TOLERANCE):
        raise UnsupportedModel(
            f"The bridge's logits differ from those of the transformers modules that it wraps by "
            f"{apart:.2g} of the largest: its hooks, processed weights or training have changed "
            "it; attach the transformers model, or a bridge without them."
        )


def _display(dashboard: server.Dashboard) -> None:
    """Show a dashboard before the cell ends: as a frame in a notebook, else as its address."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        ipython.display.display(dashboard)
    print(f"{dashboard}; interrupt to go on.", flush=True)
