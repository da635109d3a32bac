"""Amazon: every request is signed as Amazon verifies it, with credentials that hold up no other request, and a
serverless collection is told to be of no use."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from botocore.credentials import Credentials

from hindsight_core.errors import ConfigurationError, StoreUnavailable
from hindsight_core.lexical import tokens
from hindsight_core.stores import ChangeSet, MemoryStore, open_store
from opensearch_place import OpenSearchPlace
from opensearch_proxy import Issuer, Verifier, serving
from samples import EVERYTHING, NAMESPACE, memory, puts, record, run, search, unit

KEY = Credentials("AKIDEXAMPLE", "a secret", "a session's token")


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY.secret_key)
    monkeypatch.setenv("AWS_SESSION_TOKEN", KEY.token)


@asynccontextmanager
async def signed(place: OpenSearchPlace, verifier: Verifier, options: str = "") -> AsyncGenerator[MemoryStore]:
    async with serving(verifier) as address:
        store = open_store(f"opensearch+aws://{address}/{place.prefix}?region=eu-west-1&tls=false&timeout=10{options}")
        try:
            yield store
        finally:
            await store.aclose()


async def test_every_request_is_signed_as_amazon_verifies_it(
    key: None, opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    opensearch_place.empty()
    verifier = Verifier(opensearch_url, KEY)
    async with signed(opensearch_place, verifier) as store:
        await store.prepare("model-a")
        of = record(memory("茶%,&= 🫖", "茶壶是蓝色的。"), unit(1))
        await store.commit(NAMESPACE, puts(of))
        assert (await store.rank(NAMESPACE, search(tokens("蓝色"), unit(1)))).hits[0].memory == of.memory
        assert len(await store.scan(NAMESPACE, EVERYTHING, after=None, limit=5)) == 1
        await store.commit(NAMESPACE, ChangeSet(run=run("2"), erases=(of.memory.id,)))
        assert await store.read(NAMESPACE, "runs", limit=1) != []
        assert (await store.check()).status == "ok"
    assert verifier.passed > 15
    assert verifier.refused == verifier.greeted == 0
    assert verifier.regions == {("eu-west-1", "es")}


async def test_a_wrong_key_is_an_error_at_the_start_that_says_so(
    key: None, opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    verifier = Verifier(opensearch_url, Credentials(KEY.access_key, "another secret", KEY.token))
    async with signed(opensearch_place, verifier) as store:
        with pytest.raises(ConfigurationError, match="signature we calculated") as caught:
            await store.prepare(None)
    assert "role" in caught.value.remedy
    assert verifier.passed == 0


async def test_a_serverless_collection_is_refused_with_what_it_lacks_and_left_untouched(
    key: None, opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    opensearch_place.empty()
    verifier = Verifier(opensearch_url, KEY, serverless=True)
    async with signed(opensearch_place, verifier, "&service=aoss") as store:
        with pytest.raises(ConfigurationError, match=r"takes no ids.*knows no refresh") as caught:
            await store.prepare("model-a")
    assert "service=es" in caught.value.remedy
    assert verifier.regions == {("eu-west-1", "aoss")}
    assert verifier.greeted == 0
    assert opensearch_place.holding("model-a") == []


async def test_a_collection_that_lacks_nothing_is_used(
    key: None, opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    opensearch_place.empty()
    async with signed(opensearch_place, Verifier(opensearch_url, KEY), "&service=aoss") as store:
        await store.prepare("model-a")
        assert await store.commit(NAMESPACE, puts(record(memory("a")))) == 1


def nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials but those that a test gives."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


async def test_without_credentials_nothing_is_sent_and_the_remedy_names_them(
    monkeypatch: pytest.MonkeyPatch, opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    nothing_else(monkeypatch)
    verifier = Verifier(opensearch_url, KEY)
    async with signed(opensearch_place, verifier) as store:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="no AWS credentials") as caught:
                await store.prepare("model-a")
            assert "AWS_ACCESS_KEY_ID" in caught.value.remedy
    assert verifier.passed == verifier.refused == 0


@asynccontextmanager
async def issuing(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    nothing_else(monkeypatch)
    async with serving(issuer) as address:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://{address}/role")
        try:
            yield
        finally:
            issuer.let_go.set()


NEXT = Credentials("AKIDNEXT", "another secret", "another token")
A_DAY, SOME_MINUTES, SECONDS = timedelta(days=1), timedelta(minutes=5), timedelta(seconds=30)


async def test_credentials_are_asked_for_once_and_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    issuer = Issuer((KEY, A_DAY))
    async with issuing(issuer, monkeypatch), signed(opensearch_place, Verifier(opensearch_url, KEY)) as store:
        for _ in range(2):
            checked = await asyncio.gather(*(store.check() for _ in range(3)))
            assert {component.status for component in checked} == {"ok"}
    assert issuer.asked == 1


# Botocore asks again for credentials that it has found and that end soon, so the first are of two answers.


async def test_credentials_that_end_soon_are_renewed_while_requests_go_on(
    monkeypatch: pytest.MonkeyPatch, opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    issuer = Issuer(*[(KEY, SOME_MINUTES)] * 2, (NEXT, A_DAY), holds=3)
    verifier = Verifier(opensearch_url, KEY, NEXT)
    async with issuing(issuer, monkeypatch), signed(opensearch_place, verifier) as store:
        for _ in range(2):
            assert (await store.check()).status == "ok"
        await issuer.arrived.wait()
        assert verifier.keys == {KEY.access_key}
        issuer.let_go.set()
        while NEXT.access_key not in verifier.keys:
            assert (await store.check()).status == "ok"
    assert verifier.refused == 0


async def test_a_request_waits_for_new_credentials_where_those_at_hand_are_about_to_end(
    monkeypatch: pytest.MonkeyPatch, opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    issuer = Issuer(*[(KEY, SECONDS)] * 2, (NEXT, A_DAY))
    verifier = Verifier(opensearch_url, KEY, NEXT)
    async with issuing(issuer, monkeypatch), signed(opensearch_place, verifier) as store:
        assert (await store.check()).status == "ok"
        verifier.keys.clear()
        assert (await store.check()).status == "ok"
    assert issuer.asked == 3
    assert verifier.keys == {NEXT.access_key}


async def test_credentials_that_are_not_to_be_had_are_told_and_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    issuer = Issuer(None, (KEY, A_DAY))
    verifier = Verifier(opensearch_url, KEY)
    async with issuing(issuer, monkeypatch), signed(opensearch_place, verifier) as store:
        with pytest.raises(StoreUnavailable, match=r"credentials to sign requests to .* are not to be had") as caught:
            await store.check()
        assert "role" in caught.value.remedy
        assert (await store.check()).status == "ok"


async def test_what_fails_beside_requests_holds_none_of_them_up_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    opensearch_place: OpenSearchPlace,
    opensearch_url: str,
) -> None:
    issuer = Issuer(*[(KEY, SOME_MINUTES)] * 2, None)
    verifier = Verifier(opensearch_url, KEY)
    async with issuing(issuer, monkeypatch), signed(opensearch_place, verifier) as store:
        while issuer.asked < 5:
            assert (await store.check()).status == "ok"
    gc.collect()
    assert {record.name for record in caplog.records} == {"botocore.credentials"}


async def test_a_store_that_is_closed_while_credentials_are_on_their_way_sends_nothing(
    monkeypatch: pytest.MonkeyPatch, opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    issuer = Issuer((KEY, A_DAY), holds=1)
    verifier = Verifier(opensearch_url, KEY)
    async with issuing(issuer, monkeypatch), signed(opensearch_place, verifier) as store:
        asking = asyncio.create_task(store.check())
        await issuer.arrived.wait()
        await store.aclose()
        issuer.let_go.set()
        with pytest.raises(StoreUnavailable, match="closed"):
            await asking
    assert verifier.passed == 0
