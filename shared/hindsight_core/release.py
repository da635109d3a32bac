"""Which release this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    """The installed version, such as `0.1.0`; `0+source` when it runs from a checkout that is not installed."""
    try:
        return version("hindsight-memory")
    except PackageNotFoundError:
        return "0+source"
