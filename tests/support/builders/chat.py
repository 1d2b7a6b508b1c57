"""Models that read conversations: a chat template beside their tokenizer."""

import json
from pathlib import Path

TEMPLATE = "{% for m in messages %}{{ bos_token }}{{ m['role'] }}:{{ m['content'] }}\n{% endfor %}"


def with_template(path: Path, template: str = TEMPLATE) -> str:
    """Put a chat template into a model's directory, and return its name."""
    file = path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
    return str(path)
