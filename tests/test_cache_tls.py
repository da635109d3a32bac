"""The cache over TLS with a user and a password, as ElastiCache wants it: a real server behind a real TLS endpoint.

The server that tests have is built without TLS, so a TLS endpoint of this process stands before it, as a load balancer
does before a managed one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import trustme
from redis.asyncio import Redis

from hindsight_core.cache import open_cache

HOUR = 3600.0


@pytest.fixture
async def user(redis_url: str) -> AsyncGenerator[str]:
    """Somebody who may use the server, with the password "s cret@1"."""
    name = f"ana-{uuid4().hex}"
    async with Redis.from_url(redis_url) as client:
        await client.acl_setuser(name, enabled=True, passwords=["+s cret@1"], keys=["*"], categories=["+@all"])
        yield name
        await client.acl_deluser(name)


@pytest.fixture
async def endpoint(redis_url: str, tmp_path: Path) -> AsyncGenerator[tuple[int, Path, list[str | None]]]:
    """The port of a TLS endpoint before the server, its authority's certificate, each connection's protocol."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    behind = urlsplit(redis_url)
    seen: list[str | None] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("ssl_object").version())
        there, back = await asyncio.open_connection(behind.hostname, behind.port)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1], tmp_path / "ca.pem", seen
    server.close()


async def test_what_is_kept_over_tls_is_found_again_by_the_named_user(endpoint, user):
    port, authority, seen = endpoint
    cache = open_cache(f"rediss://{user}:s%20cret%401@127.0.0.1:{port}/0?ssl_ca_certs={authority}", timeout=10.0)
    await cache.start()
    name = f"名 {uuid4()}"
    await cache.put({name: b"\x00\xff"}, HOUR)
    assert await cache.get([name, "nothing"]) == [b"\x00\xff", None]
    assert (await cache.check()).status == "ok"
    assert seen
    assert set(seen) == {"TLSv1.3"}
    await cache.aclose()


@pytest.mark.parametrize(
    ("secret", "trusted", "said"),
    [("wrong", True, "password"), ("s%20cret%401", False, "certificate")],
    ids=["wrong password", "unknown authority"],
)
async def test_who_may_not_or_cannot_be_trusted_is_told_and_everything_goes_on(endpoint, user, secret, trusted, said):
    port, authority, _ = endpoint
    trust = f"?ssl_ca_certs={authority}" if trusted else ""
    cache = open_cache(f"rediss://{user}:{secret}@127.0.0.1:{port}/0{trust}", timeout=10.0)
    await cache.start()
    name = f"名 {uuid4()}"
    await cache.put({name: b"x"}, HOUR)
    assert await cache.get([name]) == [None]
    check = await cache.check()
    assert check.status == "degraded"
    assert said in (cache.trouble or "").casefold()
    assert "cret" not in (cache.trouble or "")
    await cache.aclose()
