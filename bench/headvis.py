"""``python -m bench.headvis MODEL``: compare our pass with the published pipeline of HeadVis.

Both compute the six metrics of every head of a model directory, on the same tokens and machine.
Each runs in a separate process, measured from start to end: seconds, peak memory, and the
differences of the metrics. Use at most 50 texts: then the pipeline computes only metrics, as our
pass does. A third process runs only the model, with fused attention, in our batches, and up to the
last layer's attention. No pass over these tokens can be faster.

The pipeline is not part of this project. Set ``POSKERNEL_HEADVIS`` to a checkout of it::

    git clone --depth 1 https://github.com/hijohnnylin/neuronpedia
    POSKERNEL_HEADVIS=neuronpedia python -m bench.headvis MODEL
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from poskernel_core.analyses.headvis.spec import HeadVisMetrics
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.data.texts import documents

SCRIPT = "utils/neuronpedia-utils/neuronpedia_utils/headvis/compute-head-metrics.py"
CHARACTERS_PER_TOKEN = 8
METRICS = [value.name for value in HeadVisMetrics.values]
CLOSE = 1e-4


def main() -> None:
    """Run all rounds and print the table."""
    parser = argparse.ArgumentParser(prog="bench.headvis", description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="a model's directory in hub format")
    parser.add_argument("--windows", type=int, default=16, help="at most 50")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    script = _pipeline()
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        _write_texts(options, place)
        rounds: list[tuple[dict[str, float], ...]] = []
        for _ in range(options.rounds):
            pipeline, theirs = _theirs(script, options, place)
            ours_took, ours = _ours(options, place)
            rounds.append((pipeline, ours_took, _alone(options, place)))
    _print(options, rounds, _differences(ours, theirs))


def _pipeline() -> Path:
    named = os.environ.get("POSKERNEL_HEADVIS", "")
    script = Path(named).absolute() / SCRIPT
    if not named or not script.is_file():
        sys.exit(f"Expected POSKERNEL_HEADVIS to name a checkout with {SCRIPT}.\n\n{__doc__}")
    return script


def _write_texts(options: argparse.Namespace, place: Path) -> None:
    """Write texts of at least ``context`` tokens for the pipeline, and their token ids for us."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    whole = "\n\n".join(documents(CorpusSpec(name="bible")))
    step = options.context * CHARACTERS_PER_TOKEN
    texts = [whole[first : first + step] for first in range(0, len(whole) - step, step)]
    texts = [text for text in texts if text.strip()][: options.windows]
    ids = [tokenizer(text, truncation=True, max_length=options.context).input_ids for text in texts]
    if len(texts) < options.windows or any(len(each) < options.context for each in ids):
        sys.exit("The sample is too short for that: ask for fewer windows, or a shorter context.")
    np.save(place / "tokens.npy", np.array(ids))
    (place / "texts").mkdir()
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (place / "texts" / "train.jsonl").write_text(lines, encoding="utf-8")
    (place / "map.json").write_text(json.dumps({"raced": str(options.model.absolute())}))


def _theirs(
    script: Path, options: argparse.Namespace, place: Path
) -> tuple[dict[str, float], dict[tuple[int, int], dict[str, Any]]]:
    command = [
        sys.executable, str(script),
        "--model-name", str(options.model.absolute()),
        "--np-model-map", str(place / "map.json"),
        "--dataset-name", str(place / "texts"),
        "--no-streaming",
        "--n-sequences", str(options.windows),
        "--seq-len", str(options.context),
        "--exports-dir", str(place / "exports"),
        "--hf-cache-dir", str(place / "hub"),
        "--device", "cpu", "--dtype", "float32", "--attn-implementation", "eager",
        "--min-free-vram-gb", "0",
    ]  # fmt: skip
    took = _run(command, options.threads)
    (table,) = (place / "exports").rglob("scatter_data.json")
    return took, {(row["layer"], row["head"]): row for row in json.loads(table.read_text())}


def _ours(
    options: argparse.Namespace, place: Path
) -> tuple[dict[str, float], dict[str, list[list[float]]]]:
    target = place / "ours.json"
    command = [sys.executable, "-c", OURS, str(options.model), str(place / "tokens.npy")]
    took = _run([*command, str(target), str(options.threads)], options.threads)
    found: dict[str, list[list[float]]] = json.loads(target.read_text())
    return took, found


OURS = """
import json, sys
import numpy as np, torch
torch.set_num_threads(int(sys.argv[4]))
import poskernel_core as pk
model = pk.load(sys.argv[1], device="cpu")
windows = np.load(sys.argv[2])
found = pk.run_pass(model, windows, start_token=False, gather=("headvis",))
values = pk.analyse("headvis", found).values
open(sys.argv[3], "w").write(json.dumps({name: v.tolist() for name, v in values.items()}))
"""


def _alone(options: argparse.Namespace, place: Path) -> dict[str, float]:
    """Run only the model, over the same tokens."""
    command = [sys.executable, "-c", ALONE, str(options.model), str(place / "tokens.npy")]
    return _run([*command, str(options.threads)], options.threads)


ALONE = """
import sys
import numpy as np, torch
from transformers import AutoModelForCausalLM
from bench.shapes import trunk
from poskernel_core.passes.streaming import default_batch
torch.set_num_threads(int(sys.argv[3]))
torch.set_grad_enabled(False)
windows = np.load(sys.argv[2])
read = trunk(AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval())
size = default_batch("cpu", windows.shape[1])
for first in range(0, len(windows), size):
    read(windows, range(first, min(first + size, len(windows))))
"""


def _run(command: list[str], threads: int) -> dict[str, float]:
    """Run a command; return its seconds and its peak memory (Linux)."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            sys.exit(said.read().decode(errors="replace")[-3000:])
    return {"seconds": time.perf_counter() - began, "peak_gb": used.ru_maxrss / 2**20}


def _differences(
    ours: dict[str, list[list[float]]], theirs: dict[tuple[int, int], dict[str, Any]]
) -> dict[str, float]:
    """Return each metric's largest difference, which is relative for values above 1."""
    found = {}
    for name in METRICS:
        off = []
        for (layer, head), row in theirs.items():
            mine, other = ours[name][layer][head], row[name]
            if other is None or mine != mine:
                off.append(0.0 if other is None and mine != mine else float("inf"))
            else:
                off.append(abs(mine - other) / max(1.0, abs(other)))
        found[name] = max(off)
    return found


def _print(
    options: argparse.Namespace,
    rounds: list[tuple[dict[str, float], ...]],
    differences: dict[str, float],
) -> None:
    print(
        f"{options.model.name}, {options.windows} windows of {options.context} tokens, float32, "
        f"{options.threads} threads, whole processes, median of {options.rounds}; "
        f"{platform.machine()}, {os.cpu_count()} cores\n"
    )
    print("| | pipeline of HeadVis | our pass | the model alone | ratio | at most |")
    print("|---|---|---|---|---|---|")
    for name, title in (("seconds", "seconds"), ("peak_gb", "peak memory (GB)")):
        sides = zip(*((each[name] for each in taken) for taken in rounds), strict=True)
        medians = " | ".join(f"{statistics.median(side):.2f}" for side in sides)
        ratio, most = (
            statistics.median(taken[0][name] / taken[by][name] for taken in rounds) for by in (1, 2)
        )
        print(f"| {title} | {medians} | {ratio:.1f}× | {most:.1f}× |")
    print("\n| metric | largest difference (relative above 1) |\n|---|---|")
    for name, off in differences.items():
        print(f"| {name} | {off:.1e}{'' if off <= CLOSE else ' (too large)'} |")
    if max(differences.values()) > CLOSE:
        sys.exit(1)


if __name__ == "__main__":
    main()
