"""Where an OpenSearch is and how it is used: `opensearch://USER:PASSWORD@HOST:PORT/PREFIX?OPTION=VALUE`, read once.

Schemes: `opensearch` (plain), `opensearchs` (TLS), `opensearch+aws` (TLS, requests signed for Amazon). The options are
the fields of `Options`; a user or password with special characters is percent-encoded.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from msgspec import Meta

from hindsight_core.errors import ConfigurationError

_PREFIX = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}\Z")
_EXAMPLE = "opensearch://localhost:9200/hindsight?ef_search=64"


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What follows the question mark.

    `shards` of a new index, of which each namespace has `spread`; a k-NN search for the k nearest is as broad as
    `ef_search`, or as k where that is more. Up to `exact_below` memories in scope are compared one by one, more by k-NN
    with exact scores for the best. `timeout` in seconds bounds every call. `verify=false` accepts any certificate.
    `region`, `service` (`es` for a domain, `aoss` for a serverless collection) and `tls` are for `opensearch+aws`.
    """

    shards: Annotated[int, Meta(ge=1, le=1024)] = 1
    spread: Annotated[int, Meta(ge=1, le=1023)] = 1
    ef_search: Annotated[int, Meta(ge=1, le=10_000)] = 64
    exact_below: Annotated[int, Meta(ge=0)] = 50_000
    timeout: Annotated[float, Meta(gt=0)] = 30.0
    verify: bool = True
    region: str = ""
    service: Literal["es", "aoss"] = "es"
    tls: bool = True


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL; `str()` of it names the place without user and password."""

    host: str
    port: int
    prefix: str
    tls: bool
    signed: bool
    user: str | None = None
    password: str = ""
    options: Options = Options()

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.prefix}"


def parse(url: str) -> Address:
    """The address that a URL names; `ConfigurationError` says what is wrong with it, never its password."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise _fault("its port is not a number between 0 and 65535") from None
    if parts.scheme not in {"opensearch", "opensearchs", "opensearch+aws"}:
        raise _fault(f"the scheme {parts.scheme!r} is not known")
    if not parts.hostname:
        raise _fault("it names no host")
    prefix = parts.path.strip("/") or "hindsight"
    if not _PREFIX.match(prefix):
        raise _fault(f"{prefix!r} cannot begin the name of an index: small letters, digits, - and _ only")
    try:
        options = msgspec.convert(dict(parse_qsl(parts.query, keep_blank_values=True)), Options, strict=False)
    except msgspec.ValidationError as exc:
        raise _fault(str(exc)) from exc
    if options.spread > 1 and options.spread >= options.shards:
        raise _fault("spread must be less than shards")
    signed = parts.scheme == "opensearch+aws"
    if signed and not options.region:
        raise _fault("Amazon's region is missing (?region=eu-west-1)")
    tls = options.tls if signed else parts.scheme == "opensearchs"
    return Address(
        host=parts.hostname,
        port=port or (443 if signed else 9200),
        prefix=prefix,
        tls=tls,
        signed=signed,
        user=None if parts.username is None else unquote(parts.username),
        password=unquote(parts.password or ""),
        options=options,
    )


def _fault(what: str) -> ConfigurationError:
    return ConfigurationError(f"HINDSIGHT_STORE: {what}.", remedy=f"Give a URL such as {_EXAMPLE}")
