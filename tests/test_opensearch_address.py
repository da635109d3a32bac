"""The URL of an OpenSearch store: what it may say, and what is told when it is wrong."""

from __future__ import annotations

import pytest

from hindsight_core.errors import ConfigurationError
from hindsight_core.stores import open_store
from hindsight_core.stores.opensearch.address import Address, Options, parse


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
