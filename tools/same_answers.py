"""Check that another commit gives the same results: `python tools/same_answers.py COMMIT`.

Both commits, this tree and the given one, run in separate processes and caches and answer every
question of every bundled model; the JSON values and errors must be equal to the last bit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ASK = """
import json, sys
import poskernel_core as pk
from poskernel_core.analyses import ANALYSES
TEXT = "And the king said to the people of the land: the king of the land is come."
WANTED = {"word": " the", "words": "king", "samples": 60, "first_windows": 40, "change": "average"}
models, context, windows = json.loads(sys.argv[1])
engine = pk.Engine()
for model in models:
    for name, question in ANALYSES.items():
        fields = question.params.model_fields
        params = {field: value for field, value in WANTED.items() if field in fields}
        if name in ("stages", "intervention"):
            params["text"] = TEXT
        asked = {"head": "L0H1"} if "head" in fields and fields["head"].is_required() else {}
        try:
            found = pk.show(name, model, context=context, windows=windows, engine=engine,
                            params=params, **asked).as_json()
            said = {each: found[each] for each in ("values", "errors")}
        except pk.PosKernelError as error:
            said = {"refused": str(error)}
        print(json.dumps([model, name, said]), flush=True)
engine.close()
"""
MODELS = ("demo-gpt2", "demo-attn-2l", "gpt2-small-layer0")


def answers(tree: Path, context: int, windows: int) -> dict[tuple[str, str], object]:
    """Return the results of a tree by model and question: values and errors, or the refusal."""
    with tempfile.TemporaryDirectory() as cache:
        settings = {"POSKERNEL_CACHE": cache, "POSKERNEL_SHIPPED": "0", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", ASK, json.dumps([MODELS, context, windows])],
            cwd=tree, env=os.environ | settings, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    return {(model, name): said for model, name, said in map(json.loads, done.stdout.splitlines())}


def main() -> None:
    """Compare all questions, print a line for each, and fail if any differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the commit to hold this tree against")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--windows", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(
            ["git", "worktree", "add", "-q", "--detach", str(tree), options.commit],
            cwd=ROOT, check=True,
        )  # fmt: skip
        try:
            before = answers(tree, options.context, options.windows)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT)
    after = answers(ROOT, options.context, options.windows)
    different = 0
    for key in sorted(before.keys() | after.keys()):
        same = before.get(key) == after.get(key)
        refused = isinstance(said := after.get(key), dict) and "refused" in said
        different += not same
        print(f"{key[0]:20} {key[1]:20} {'equal' if same else 'DIFFERENT'}"
              f"{' (refused alike)' if same and refused else ''}")  # fmt: skip
    print(f"{len(before | after) - different} equal, {different} different")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
