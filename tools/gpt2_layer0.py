"""Make the bundled model `gpt2-small-layer0` from the weights of GPT-2 small.

    python tools/gpt2_layer0.py DIRECTORY

DIRECTORY holds GPT-2 small's `model.safetensors` (or a file with only its first layer); the tensors
have the hub's names. Positional embeddings, first norm and layer 0's attention are copied as 16-bit
floats; token embeddings are random, and there is no MLP. The same input gives the same bytes on
every machine, because the random bits come from a counter-based generator.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

DEMO = Path(__file__).resolve().parents[1] / "poskernel_core" / "demo"
OUT = DEMO / "gpt2-small-layer0"
TOKENIZER = DEMO / "demo-attn-2l"
TAKEN = (
    "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.attn.c_attn.weight",
    "h.0.attn.c_attn.bias", "h.0.attn.c_proj.weight", "h.0.attn.c_proj.bias",
)  # fmt: skip
WIDTH, HEADS, CONTEXT = 768, 12, 1024
NORM = 3.5
"""Length of a token embedding, similar to GPT-2's."""
SEED = 0
LACKS = ["later layers", "token embeddings", "neurons", "predictions"]


def main() -> None:
    OUT.mkdir(exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, OUT / name)
    settings = json.loads((OUT / "tokenizer_config.json").read_text("utf-8"))
    _write_json("tokenizer_config.json", settings | {"model_max_length": CONTEXT})
    tokens = len(json.loads((OUT / "tokenizer.json").read_text("utf-8"))["model"]["vocab"])
    with safe_open(Path(sys.argv[1]) / "model.safetensors", framework="np") as weights:
        prefix = "transformer." if "transformer.wpe.weight" in weights.keys() else ""  # noqa: SIM118
        tensors = {name: weights.get_tensor(prefix + name) for name in TAKEN}
    tensors |= {"wte.weight": draw_tokens(tokens)} | empty_rest()
    halves = {f"transformer.{name}": a.astype(np.float16) for name, a in sorted(tensors.items())}
    save_file(halves, OUT / "model.safetensors", metadata={"format": "pt"})
    _write_json("config.json", configuration(tokens))


def draw_tokens(count: int) -> np.ndarray:
    """Return random token embeddings ``[token, model]``: every entry is one of two values.

    Vectors of random signs have the same length and are nearly orthogonal to each other and to the
    positions; GPT-2's token embeddings are also nearly orthogonal to its positions.
    """
    bits = np.random.Philox(SEED).random_raw(count * WIDTH // 64).astype("<u8").view(np.uint8)
    signs = np.unpackbits(bits).reshape(count, WIDTH) * 2.0 - 1.0
    return signs * NORM / np.sqrt(WIDTH)


def empty_rest() -> dict[str, np.ndarray]:
    """Return the other tensors of the architecture: norms without effect and an MLP of zeros."""
    width, one = np.zeros(WIDTH), np.ones(WIDTH)
    return {
        "h.0.ln_2.weight": one, "h.0.ln_2.bias": width, "ln_f.weight": one, "ln_f.bias": width,
        "h.0.mlp.c_fc.weight": np.zeros((WIDTH, 1)), "h.0.mlp.c_fc.bias": np.zeros(1),
        "h.0.mlp.c_proj.weight": np.zeros((1, WIDTH)), "h.0.mlp.c_proj.bias": width,
    }  # fmt: skip


def configuration(tokens: int) -> dict[str, object]:
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 1, "n_inner": 1,
        "n_head": HEADS, "n_embd": WIDTH, "n_positions": CONTEXT, "vocab_size": tokens,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "dtype": "float16",
        "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": True,
        "scale_attn_weights": True, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        "poskernel": {"part_of": "gpt2", "lacks": LACKS},
    }  # fmt: skip


def _write_json(name: str, value: object) -> None:
    (OUT / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
