"""Amazon: every request is signed as Amazon verifies it, and a serverless collection is told to be of no use."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from botocore.credentials import Credentials

from hindsight_core.errors import ConfigurationError
from hindsight_core.lexical import tokens
from hindsight_core.stores import ChangeSet, MemoryStore, open_store
from opensearch_place import OpenSearchPlace
from opensearch_proxy import Verifier, serving
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
    assert verifier.refused == 0
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
    assert opensearch_place.holding("model-a") == []


async def test_a_collection_that_lacks_nothing_is_used(
    key: None, opensearch_place: OpenSearchPlace, opensearch_url: str
) -> None:
    opensearch_place.empty()
    async with signed(opensearch_place, Verifier(opensearch_url, KEY), "&service=aoss") as store:
        await store.prepare("model-a")
        assert await store.commit(NAMESPACE, puts(record(memory("a")))) == 1


def test_without_credentials_nothing_is_sent_and_the_remedy_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from hindsight_core.stores.opensearch.address import parse
    from hindsight_core.stores.opensearch.connection import signer

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ConfigurationError) as caught:
        signer(parse("opensearch+aws://localhost?region=eu-west-1"))
    assert "AWS_ACCESS_KEY_ID" in caught.value.remedy
