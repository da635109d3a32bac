"""The URL of an OpenSearch store: what it may say, and what is told when it is wrong."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np
import pytest

from hindsight_core.errors import ConfigurationError
from hindsight_core.lexical import tokens
from hindsight_core.stores import Where, open_store
from hindsight_core.stores.opensearch.address import Address, Options, parse
from hindsight_core.stores.opensearch.connection import Connection
from hindsight_core.stores.opensearch.store import OpenSearchStore
from opensearch_place import OpenSearchPlace, store_address
from opensearch_proxy import Doorkeeper, serving
from samples import NAMESPACE, memory, puts, record, search, unit


def test_a_bare_host_is_plain_http_on_port_9200_below_the_prefix_hindsight() -> None:
    assert parse("opensearch://localhost") == Address(
        host="localhost", port=9200, prefix="hindsight", tls=False, signed=False
    )


def test_user_and_password_are_decoded_and_never_shown() -> None:
    address = parse("opensearchs://ann:p%40ss%2Fword@search.example:9443/team-a?verify=false")
    assert (address.user, address.password, address.tls) == ("ann", "p@ss/word", True)
    assert address.options == Options(verify=False)
    assert str(address) == "search.example:9443/team-a"


def test_every_option_is_read() -> None:
    url = "opensearch://h/p?shards=3&spread=2&ef_search=128&exact_below=500&timeout=2.5"
    assert parse(url).options == Options(shards=3, spread=2, ef_search=128, exact_below=500, timeout=2.5)


def test_amazon_is_signed_tls_on_port_443_and_needs_its_region() -> None:
    address = parse("opensearch+aws://domain.eu-west-1.es.amazonaws.com?region=eu-west-1&service=es")
    assert (address.port, address.tls, address.signed) == (443, True, True)
    with pytest.raises(ConfigurationError, match="region"):
        parse("opensearch+aws://domain.eu-west-1.es.amazonaws.com")


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("opensearch://", "no host"),
        ("opensearch://h:99999", "port"),
        ("opensearch://h:x", "port"),
        ("opensearch://h/Upper", "Upper"),
        ("opensearch://h/a/b", "a/b"),
        ("opensearch://h/_p", "_p"),
        ("opensearch://h/p*", "p"),
        ("opensearch://h?shard=3", "shard"),
        ("opensearch://h?shards=0", "shards"),
        ("opensearch://h?shards=2&spread=2", "spread"),
        ("opensearch://h?timeout=soon", "timeout"),
        ("opensearch+aws://h?region=r&service=s3", "service"),
        ("opensearch+gcp://h", "gcp"),
    ],
)
def test_what_is_wrong_with_a_url_is_told_with_the_setting_and_without_the_password(url: str, wrong: str) -> None:
    secret = url.replace("://", "://ann:hush@", 1)
    with pytest.raises(ConfigurationError, match=wrong) as caught:
        open_store(secret)
    assert "HINDSIGHT_STORE" in caught.value.detail
    assert "hush" not in caught.value.detail + caught.value.remedy


class Watched(Connection):
    """A connection that keeps the bodies of the searches sent over it."""

    def __init__(self, url: str) -> None:
        super().__init__(parse(url))
        self.searches: list[Any] = []

    async def _send(self, method: str, path: str, body: Any, params: Any, within: float) -> Any:
        if path.endswith("/_search"):
            self.searches.append(body)
        elif path == "/_msearch":
            self.searches += [msgspec.json.decode(line) for line in body.splitlines()[1::2]]
        return await super()._send(method, path, body, params, within)


def looked_for(body: Any) -> set[tuple[int, int]]:
    """Of every k-NN search in a body, how many it looks for and how broad it is."""
    if isinstance(body, list):
        return {one for part in body for one in looked_for(part)}
    if not isinstance(body, dict):
        return set()
    found = {one for part in body.values() for one in looked_for(part)}
    for search_of in body.get("knn", {}).values():
        found.add((search_of["k"], search_of["method_parameters"]["ef_search"]))
    return found


@pytest.mark.parametrize(
    ("ef_search", "with_words", "without_words", "near"),
    [(64, (100, 100), (1000, 1000), (64, 64)), (300, (100, 300), (1000, 1000), (300, 300))],
)
async def test_a_k_nn_search_is_as_broad_as_the_url_says_and_never_narrower_than_what_it_looks_for(
    opensearch_place: OpenSearchPlace,
    ef_search: int,
    with_words: tuple[int, int],
    without_words: tuple[int, int],
    near: tuple[int, int],
) -> None:
    opensearch_place.empty()
    connection = Watched(f"{opensearch_place.store_url}?exact_below=0&ef_search={ef_search}")
    store = OpenSearchStore(connection)
    try:
        await store.prepare("model-a")
        await store.commit(NAMESPACE, puts(record(memory("a", "The kettle is blue."), unit(1))))
        for ask, expected in (
            (partial(store.rank, NAMESPACE, search(tokens("kettle"), unit(1))), with_words),
            (partial(store.rank, NAMESPACE, search((), unit(1))), without_words),
            (partial(store.neighbours, NAMESPACE, np.stack([unit(1)]), Where(), 10), near),
        ):
            connection.searches.clear()
            await ask()
            assert looked_for(connection.searches) == {expected}
    finally:
        await store.aclose()


async def test_tests_may_point_at_a_cluster_with_a_user_and_a_password(opensearch_url: str) -> None:
    keeper = Doorkeeper(opensearch_url, "ann", "p@ss:w/rd")
    async with serving(keeper) as address:
        place = OpenSearchPlace(f"http://ann:{quote('p@ss:w/rd', safe='')}@{address}")
        store = open_store(place.store_url)
        await store.prepare("model-a")
        await store.commit(NAMESPACE, puts(record(memory("a"))))
        await store.aclose()
        assert await asyncio.to_thread(place.holding, '"a"') != []
        await asyncio.to_thread(place.__exit__)
    assert keeper.refused == 0


def test_a_url_with_tls_and_a_user_becomes_the_address_of_a_store() -> None:
    found = parse(f"{store_address('https://ann:p%40ss@search.example:9443')}/tests")
    assert (found.tls, found.host, found.port) == (True, "search.example", 9443)
    assert (found.user, found.password) == ("ann", "p@ss")
    assert not parse(f"{store_address('http://127.0.0.1:9200')}/tests").tls
