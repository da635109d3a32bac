"""A copy of the embedded store's file as it is at one instant, made while others read and write it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec

from hindsight_core.errors import ConfigurationError, InvalidInput, StoreUnavailable
from hindsight_core.stores.schema import APPLICATION_ID, MIGRATIONS

_PAGES = 1000


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds; `counts` were read from it again."""

    file: str
    bytes: int
    counts: dict[str, int]


def back_up(source: Path, target: Path, told: Callable[[int, int], None] | None = None) -> Backup:
    """Copy the store in `source` to the new file `target`, then open the copy and look it through.

    `told` hears how many pages of how many are done. Nothing stands under the name `target` before the copy is whole
    and on the disk. Raises `InvalidInput` where there is no store, or something at `target` already, and
    `StoreUnavailable` when the copy is not what it should be.
    """
    if not source.exists():
        raise InvalidInput.of("store", f"there is no file {source}")
    if target.exists():
        raise InvalidInput.of("file", f"{target} exists; a backup overwrites nothing")
    part = target.with_name(target.name + ".part")
    try:
        part.unlink(missing_ok=True)
        part.touch(mode=0o600)
        counts = _copied(source, part, told)
        with part.open("rb") as copy:
            os.fsync(copy.fileno())
        part.replace(target)
        _sync_directory(target.parent)
    except OSError as exc:
        raise ConfigurationError(f"{target} cannot be written: {exc}.", remedy="Name another place.") from exc
    except sqlite3.Error as exc:
        raise StoreUnavailable(f"{source} cannot be copied: {exc}.", remedy="Look at its disk, and try again.") from exc
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            part.with_name(part.name + suffix).unlink(missing_ok=True)
    return Backup(file=str(target), bytes=target.stat().st_size, counts=counts)


def _copied(source: Path, part: Path, told: Callable[[int, int], None] | None) -> dict[str, int]:
    live = sqlite3.connect(source, isolation_level=None)
    copy = sqlite3.connect(part, isolation_level=None)
    try:
        # One state is held on to from the first page to the last: what is written meanwhile is not waited for.
        live.execute("BEGIN")
        wanted = _counts(live)

        def progress(_: int, left: int, total: int) -> None:
            if told is not None:
                told(total - left, total)

        live.backup(copy, pages=_PAGES, progress=progress, sleep=0.0)
        live.execute("COMMIT")
        # One file, which is no less than the store: whoever opens it as one writes ahead again.
        copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        copy.close()
        copy = sqlite3.connect(part, isolation_level=None)
        found = _looked_through(copy)
        if found != wanted:
            raise StoreUnavailable(f"The copy of {source} holds {found}, not {wanted}.", remedy="Try again.")
        return found
    finally:
        live.close()
        copy.close()


def _looked_through(copy: sqlite3.Connection) -> dict[str, int]:
    (verdict,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
    (owner,) = copy.execute("PRAGMA application_id").fetchone()
    (version,) = copy.execute("PRAGMA user_version").fetchone()
    if verdict != "ok" or owner != APPLICATION_ID or not 0 < version <= len(MIGRATIONS):
        raise StoreUnavailable(f"The copy is damaged: {verdict}.", remedy="Restore the store from an earlier backup.")
    return _counts(copy)


def _counts(connection: sqlite3.Connection) -> dict[str, int]:
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    if owner != APPLICATION_ID:
        raise ConfigurationError("The file is no store of Hindsight.", remedy="Point HINDSIGHT_STORE at one.")
    tables = ("namespaces", "memories", "vectors", "events", "runs", "receipts", "retrievals", "tombstones")
    return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}  # noqa: S608 - our own names


def _sync_directory(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
