"""Notes on heads, in a separate file next to the store that is never evicted.

The file is readable JSON: a list of notes, each with the model's name, the fingerprint of its
weights, the head and the date.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from poskernel_core.common.atomic_write import write_file
from poskernel_core.common.errors import BadRequest, StoreFailed

MAX_NOTE = 4_000
FILE = "notes.json"
MAX_NOTES = 10_000


class Note(BaseModel):
    """A note on a head of some weights; ``date`` is the day, ``YYYY-MM-DD``.

    The head is such as ``L0H3``; older files say ``cell``.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    model: str
    fingerprint: str
    head: str = Field(validation_alias=AliasChoices("head", "cell"))
    text: str
    date: str


NOTES = TypeAdapter(list[Note])


class Notes:
    """The notes in a directory; safe for several processes."""

    def __init__(self, directory: Path) -> None:
        """``directory`` is the store's directory."""
        self.file = directory / FILE

    def all(self) -> list[Note]:
        """Return all notes, ordered by model and head."""
        return sorted(self._read(), key=lambda note: (note.model, note.fingerprint, note.head))

    def of(self, fingerprint: str, head: str) -> str:
        """Return the note on a head of the weights with this fingerprint, or an empty text."""
        texts = (n.text for n in self._read() if (n.fingerprint, n.head) == (fingerprint, head))
        return next(texts, "")

    def write(self, model: str, fingerprint: str, head: str, text: str) -> None:
        """Set the note on a head, replacing an earlier one; an empty text removes it."""
        text = text.strip()
        if len(text) > MAX_NOTE:
            raise BadRequest(
                f"Expected a note of at most {MAX_NOTE:,} characters, got {len(text):,}: "
                "shorten it."
            )
        today = datetime.now(UTC).date().isoformat()
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self.file}.lock"):
                place = (fingerprint, head)
                kept = [note for note in self._read() if (note.fingerprint, note.head) != place]
                if len(kept) >= MAX_NOTES:
                    raise BadRequest(f"There are {MAX_NOTES:,} notes already: remove some.")
                if text:
                    fields = {"model": model, "fingerprint": fingerprint, "head": head}
                    kept.append(Note(**fields, text=text, date=today))
                written = json.dumps([dict(note) for note in kept], indent=1, ensure_ascii=False)
                write_file(self.file, f"{written}\n")
        except (OSError, UnicodeEncodeError) as error:
            raise StoreFailed(f"The note cannot be written: {error}.") from error

    def _read(self) -> list[Note]:
        if not self.file.is_file():
            return []
        try:
            return NOTES.validate_json(self.file.read_bytes())
        except (OSError, ValidationError) as error:
            raise StoreFailed(
                f"The file of notes, {FILE}, cannot be read: expected a list of notes, each with "
                f"{', '.join(Note.model_fields)}; mend it or move it away."
            ) from error
