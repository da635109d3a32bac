"""Looking for what should be gone: the forms that a text takes where it is kept, and files searched byte by byte."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

_CHUNK = 1 << 20


def forms_of(texts: Iterable[str]) -> list[bytes]:
    """The texts as they stand in files and answers: as they are, inside JSON, and inside JSON that JSON holds."""
    found: set[bytes] = set()
    for text in texts:
        once = msgspec.json.encode(text)[1:-1]
        found.update((text.encode("utf-8", "surrogatepass"), once, msgspec.json.encode(once.decode())[1:-1]))
    found.discard(b"")
    return sorted(found)


def in_files(path: Path, forms: Iterable[bytes]) -> list[str]:
    """The files of an embedded store that hold one of the forms, as sentences."""
    wanted = list(forms)
    longest = max(map(len, wanted), default=0)
    left: list[str] = []
    for file in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))):
        if not file.exists():
            continue
        with file.open("rb") as stream:
            rest = b""
            while chunk := stream.read(_CHUNK):
                window = rest + chunk
                if any(form in window for form in wanted):
                    left.append(f"The file {file} holds the text.")
                    break
                rest = window[-longest:] if longest else b""
    return left
