"""Where memories live on this machine."""

from __future__ import annotations

from pathlib import Path

from hindsight_core.errors import MissingExtra


def data_dir() -> Path:
    """The directory that the system has for a user's application data; nothing is created.

    Raises `MissingExtra` when neither the command line nor the functions are installed.
    """
    try:
        from platformdirs import user_data_path
    except ImportError as exc:
        raise MissingExtra.of("What finds the user's data directory", "cli") from exc
    return user_data_path("hindsight", appauthor=False)


def local_path(store: str) -> Path | None:
    """The file of an embedded store that a setting names; None for a store elsewhere."""
    scheme, separator, rest = store.partition("://")
    if not separator:
        return Path(store)
    return Path(rest.removeprefix("/")) if scheme == "sqlite" else None
