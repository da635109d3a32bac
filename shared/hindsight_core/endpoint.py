"""Addresses of remote models, `MODEL@https://host/v1`, and the keys that they want."""

from __future__ import annotations

import re

from hindsight_core.errors import ConfigurationError, MissingExtra

try:
    import httpx
except ImportError as exc:
    raise MissingExtra.of("httpx, which talks to remote models,", "client") from exc

_FORM = re.compile(r"(?P<model>\S+)@(?P<base>https?://[^\s@]+)")


def named(text: str) -> tuple[str, str] | None:
    """Model and address; None where it is not of this form.

    The last "@http" divides: names of models may hold an "@", and addresses with a password in them are refused.
    """
    found = _FORM.fullmatch(text)
    return None if found is None else (found["model"], found["base"])


def address(base_url: str, path: str, *, of: str) -> httpx.URL:
    """The address of `path` below it; raises ConfigurationError, which says what it is the address `of`."""
    try:
        base = httpx.URL(base_url)
    except httpx.InvalidURL as exc:
        raise _malformed(of) from exc
    if base.scheme not in {"http", "https"} or not base.host or base.userinfo:
        raise _malformed(of)
    return base.copy_with(path=base.path.rstrip("/") + path)


def authorization(key: str, *, of: str) -> dict[str, str]:
    """The header that carries the key, none for an empty one; raises ConfigurationError where no header can."""
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError(
            f"The API key of the {of} holds characters that no key has.",
            remedy="Check that it was pasted whole, on one line and without quotes.",
        )
    return {"Authorization": f"Bearer {key}"} if key else {}


def _malformed(of: str) -> ConfigurationError:
    # Without the address: people put keys into addresses.
    return ConfigurationError(f"The address of the {of} is malformed.", remedy="Write openai:MODEL@https://host/v1.")
