"""What stands between Hindsight and an OpenSearch: it refuses some requests, and passes the others on.

One at Amazon verifies each request's signature, which it computes anew with botocore's own signer from what arrived.
With `serverless` it refuses what a serverless vector collection refuses, in Amazon's words.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import aiohttp
from aiohttp import web
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request,"
    r" SignedHeaders=([^,]+), Signature=([0-9a-f]{64})\Z"
)


class Verifier:
    """A proxy for some keys; counts what it let through, what it refused, and how often it was asked who it is."""

    def __init__(self, upstream: str, *credentials: Credentials, serverless: bool = False) -> None:
        self._upstream = upstream
        self._credentials = {each.access_key: each for each in credentials}
        self._serverless = serverless
        self.passed = 0
        self.refused = 0
        self.greeted = 0
        self.regions: set[tuple[str, str]] = set()
        self.keys: set[str] = set()

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        if (fault := self.fault(request, body)) is not None:
            self.refused += 1
            return web.json_response({"message": fault}, status=403)
        self.passed += 1
        self.greeted += request.path == "/"
        if self._serverless and (answer := _refusal(request, body)) is not None:
            return answer
        return await passed_on(self._upstream, request, body)

    def fault(self, request: web.Request, body: bytes) -> str | None:
        """What is wrong with the request's signature, None when it is right."""
        found = _AUTHORIZATION.match(request.headers.get("Authorization", ""))
        if found is None:
            return "Missing Authentication Token"
        key, day, region, service, signed, signature = found.groups()
        credentials = self._credentials.get(key)
        if credentials is None:
            return "The security token included in the request is invalid."
        stamp = request.headers["X-Amz-Date"]
        if not stamp.startswith(day):
            return "Date in Credential scope does not match."
        if request.headers["X-Amz-Content-SHA256"] != hashlib.sha256(body).hexdigest():
            return "The provided 'x-amz-content-sha256' header does not match what was computed."
        headers = {name: request.headers[name] for name in signed.split(";") if name != "host"}
        again = AWSRequest(
            method=request.method, url=f"http://{request.host}{request.raw_path}", data=body, headers=headers
        )
        again.context["timestamp"] = stamp
        signer = SigV4Auth(credentials, service, region)
        text = signer.string_to_sign(again, signer.canonical_request(again))
        if signer.signature(text, again) != signature:
            return "The request signature we calculated does not match the signature you provided."
        self.regions.add((region, service))
        self.keys.add(key)
        return None


class Doorkeeper(Verifier):
    """A proxy that lets in one user with one password, as a node with the security plugin does."""

    def __init__(self, upstream: str, user: str, password: str) -> None:
        super().__init__(upstream, Credentials(user, password))
        self._expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def fault(self, request: web.Request, body: bytes) -> str | None:
        del body
        return None if request.headers.get("Authorization") == self._expected else "Unauthorized"


class Issuer:
    """Gives out credentials as Amazon does to a container.

    Each answer is the next of `keys` with how long it holds, the last one again and again; None is a useless answer.
    From the `holds`th on they wait until they are `let_go`.
    """

    def __init__(self, *keys: tuple[Credentials, timedelta] | None, holds: int | None = None) -> None:
        self._keys = keys
        self._holds = holds
        self.asked = 0
        self.arrived = asyncio.Event()
        self.let_go = asyncio.Event()

    async def handle(self, request: web.Request) -> web.Response:
        del request
        given = self._keys[min(self.asked, len(self._keys) - 1)]
        self.asked += 1
        if self._holds is not None and self.asked >= self._holds:
            self.arrived.set()
            await self.let_go.wait()
        if given is None:
            return web.json_response({})
        key, lasting = given
        return web.json_response(
            {
                "AccessKeyId": key.access_key,
                "SecretAccessKey": key.secret_key,
                "Token": key.token,
                "Expiration": (datetime.now(UTC) + lasting).isoformat(),
            }
        )


class Busy:
    """A node that has too much to do: it answers the next `times` requests to a path with `status`.

    `path` is how the path ends; `asked` counts the requests to it.
    """

    def __init__(self, upstream: str, path: str, *, status: int, times: int) -> None:
        self._upstream = upstream
        self._path = path
        self._status = status
        self._times = times
        self.asked = 0

    async def handle(self, request: web.Request) -> web.Response:
        if request.path.endswith(self._path):
            self.asked += 1
            if self.asked <= self._times:
                return web.json_response({"error": _FULL, "status": self._status}, status=self._status)
        return await passed_on(self._upstream, request, await request.read())


class Full:
    """A node with a full queue: of each of the next `times` bulk requests it refuses the first action alone.

    `sent` is how many actions each bulk request held.
    """

    def __init__(self, upstream: str, *, times: int) -> None:
        self._upstream = upstream
        self._times = times
        self.sent: list[int] = []

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.path != "/_bulk":
            return await passed_on(self._upstream, request, body)
        lines = body.splitlines(keepends=True)  # each action is two of them
        self.sent.append(len(lines) // 2)
        if len(self.sent) > self._times:
            return await passed_on(self._upstream, request, body)
        ((verb, _),) = json.loads(lines[0]).items()
        items = [{verb: {"status": 429, "error": _FULL}}]
        if rest := b"".join(lines[2:]):
            items += json.loads((await passed_on(self._upstream, request, rest)).body)["items"]
        return web.json_response({"took": 0, "errors": True, "items": items})


async def passed_on(upstream: str, request: web.Request, body: bytes) -> web.Response:
    """What the node answers to a request with this body."""
    headers = {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession() as session,
        session.request(request.method, upstream + request.raw_path, data=body, headers=headers) as answer,
    ):
        return web.Response(body=await answer.read(), status=answer.status, content_type="application/json")


def _refusal(request: web.Request, body: bytes) -> web.Response | None:
    if request.path == "/" or request.path.endswith("/_refresh"):
        return web.json_response({"message": "Not Found"}, status=404)
    if request.path == "/_bulk":
        items = [
            {verb: {"status": 400, "error": {"type": "illegal_argument_exception", "reason": _NO_ID}}}
            for line in body.splitlines()
            for verb, fields in json.loads(line).items()
            if verb in {"create", "index"} and "_id" in fields
        ]
        if items:
            return web.json_response({"took": 0, "errors": True, "items": items})
    return None


_FULL = {"type": "rejected_execution_exception", "reason": "the queue of the node is full"}
_NO_ID = "Document ID is not supported in create/index operation request"


@asynccontextmanager
async def serving(server: Verifier | Busy | Full | Issuer) -> AsyncGenerator[str]:
    """The address at which it answers, `HOST:PORT`, on the event loop of the test: who holds that gets no answer."""
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        (bound,) = [socket.getsockname() for socket in site._server.sockets]  # type: ignore[union-attr]
        yield f"127.0.0.1:{bound[1]}"
    finally:
        await runner.cleanup()
