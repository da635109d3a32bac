"""Tokens: kept as digests in the store, the same for every process over it, made and ended on the command line."""

from __future__ import annotations

import asyncio
import os
import re
from datetime import timedelta
from pathlib import Path

import pytest

from commandline import Cli, command_line
from hindsight_core.errors import InvalidInput, NotFound
from hindsight_core.redaction import find_secret
from hindsight_core.tokens import Token, Tokens, digest_of
from samples import OpenStore
from tokens import MADE, token_for

SHAPE = re.compile(r"hst_[0-9a-f]{10}_[A-Za-z0-9_-]{43}")


@pytest.fixture
async def tokens(opened: OpenStore) -> Tokens:
    return Tokens(await opened())


async def test_a_token_is_found_by_every_process_until_it_is_dropped(tokens: Tokens, opened: OpenStore) -> None:
    assert not await tokens.exist()
    made = await token_for(tokens, "shop", name="dify")
    other = Tokens(await opened())
    found = await other.find(made)
    assert found is not None
    assert (found.name, found.namespaces, found.verbs) == ("dify", ("shop",), ("read", "write"))
    revoked = await other.revoke("dify", MADE)
    assert revoked.state(MADE) == "revoked"
    assert await other.exist()
    assert (await other.find(made)) == revoked
    await other.revoke(found.id, MADE, drop=True)
    assert not await other.exist()
    assert await other.find(made) is None


async def test_what_another_process_did_is_known_within_a_moment(opened: OpenStore) -> None:
    ours, theirs = Tokens(await opened(), fresh=0.0), Tokens(await opened())
    made = await token_for(theirs)
    assert await ours.find(made) is not None
    await theirs.revoke((await theirs.all())[0].id, MADE)
    found = await ours.find(made)
    assert found is not None
    assert found.state(MADE) == "revoked"


async def test_tokens_that_are_made_at_once_are_all_kept(opened: OpenStore) -> None:
    stores = [Tokens(await opened()) for _ in range(2)]
    made = await asyncio.gather(*(token_for(stores[n % 2], name=f"t{n}") for n in range(6)))
    assert {token.name for token in await stores[0].all()} == {f"t{n}" for n in range(6)}
    for token in made:
        assert await stores[1].find(token) is not None


class TestOneStore:
    """What does not depend on the store."""

    @pytest.fixture
    def store_url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'hindsight.db'}"

    async def test_the_secret_is_kept_nowhere(self, tokens: Tokens, tmp_path: Path) -> None:
        made = await token_for(tokens)
        secret = made.split("_", 2)[2]
        (kept,) = await tokens.all()
        assert kept.digest == digest_of(secret)
        files = [file for file in os.scandir(tmp_path) if file.is_file()]
        assert files
        for file in files:
            assert secret.encode() not in Path(file).read_bytes()  # noqa: ASYNC240 (a file of the test's own)

    async def test_nobody_can_have_one_remembered(self, tokens: Tokens) -> None:
        made = await token_for(tokens)
        for said in (made, f"use {made} for the shop", f"商店用{made}登录"):
            assert find_secret(said) is not None

    @pytest.mark.parametrize(
        "change",
        [
            lambda token: "",
            lambda token: "hst_",
            lambda token: "hst__",
            lambda token: token[:-1],
            lambda token: token + "a",
            lambda token: token.replace("hst_", "xyz_"),
            lambda token: token.replace("hst_", ""),
            lambda token: token.rsplit("_", 1)[0],
            lambda token: token.upper(),
            lambda token: token[:4] + "0" * 10 + token[14:],
            lambda token: "hst_" + "x" * 100_000,
            lambda token: token + "\ud800",
            lambda token: "令牌",
        ],
    )
    async def test_nothing_but_the_token_itself_is_found(self, tokens: Tokens, change) -> None:
        made = await token_for(tokens)
        assert await tokens.find(change(made)) is None
        assert await tokens.find(made) is not None

    async def test_a_token_is_valid_until_the_instant_it_expires(self, tokens: Tokens) -> None:
        found = await tokens.find(await token_for(tokens, days=1))
        assert found is not None
        end = MADE + timedelta(days=1)
        assert found.state(end - timedelta(milliseconds=1)) == "valid"
        assert found.state(end) == "expired"

    @pytest.mark.parametrize(
        ("fields", "named"),
        [
            ({"name": ""}, "name"),
            ({"name": "a b"}, "name"),
            ({"namespaces": ()}, "namespaces"),
            ({"namespaces": ("a b",)}, "namespaces"),
            ({"namespaces": ("",)}, "namespaces"),
            ({"namespaces": ("*a",)}, "namespaces"),
            ({"verbs": ()}, "verbs"),
            ({"user_id": ""}, "user_id"),
            ({"agent_id": "a" * 257}, "agent_id"),
            ({"expires_at": MADE}, "expires_at"),
        ],
    )
    async def test_a_token_that_could_not_be_used_is_not_made(self, tokens: Tokens, fields, named: str) -> None:
        sound = {"id": "1", "name": "n", "digest": "d", "namespaces": ("a",), "verbs": ("read",), "created_at": MADE}
        with pytest.raises(InvalidInput) as wrong:
            await tokens.create(Token(**(sound | fields)))
        assert [error.field for error in wrong.value.errors] == [named]
        assert not await tokens.exist()

    async def test_a_name_is_taken_while_its_token_is_valid(self, tokens: Tokens) -> None:
        first = await token_for(tokens, name="ci")
        with pytest.raises(InvalidInput, match="name"):
            await token_for(tokens, name="ci")
        await tokens.revoke("ci", MADE)
        second = await token_for(tokens, name="ci")
        await tokens.revoke("ci", MADE)
        for token in (first, second):
            found = await tokens.find(token)
            assert found is not None
            assert found.state(MADE) == "revoked"
        with pytest.raises(NotFound):
            await tokens.revoke("nobody", MADE)


class TestCommands:
    @pytest.fixture
    def cli(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
        return command_line(tmp_path, monkeypatch, capsys)

    def test_create_prints_the_token_alone_and_says_the_rest_beside_it(self, cli: Cli) -> None:
        made = cli("token", "create", "dify", "-n", "shop,lab", "--verb", "read", "--expires", "30d", "--rate", "60")
        assert made.code == 0
        assert SHAPE.fullmatch(made.out.strip())
        assert "dify may read in shop, lab until " in made.err
        assert "every request to a server over it needs a token" in made.err
        again = cli("token", "create", "ci", "--json")
        assert SHAPE.fullmatch(again.json["token"])
        assert (again.json["namespaces"], again.json["verbs"]) == (["default"], ["read", "write"])
        assert "first" not in again.err

    def test_list_shows_what_there_is_and_no_secret(self, cli: Cli) -> None:
        none = cli("token", "list")
        assert (none.code, none.out) == (1, "")
        secret = cli("token", "create", "dify").out.strip().split("_", 2)[2]
        listed = cli("token", "list")
        assert listed.code == 0
        assert "dify" in listed.out
        assert secret not in listed.out
        (token,) = cli("token", "list", "--json").json
        assert token["state"] == "valid"
        assert "digest" not in token

    def test_revoke_ends_one_and_drop_takes_it_off_the_list(self, cli: Cli) -> None:
        cli("token", "create", "dify")
        assert "is revoked" in cli("token", "revoke", "dify").out
        assert cli("token", "list", "--json").json[0]["state"] == "revoked"
        dropped = cli("token", "revoke", "dify", "--drop")
        assert "without tokens" in dropped.err
        assert cli("token", "list").code == 1
        assert cli("token", "revoke", "dify").code == 1

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            (("--verb", "burn"), "--verb"),
            (("--expires", "soon"), "--expires"),
            (("-n", "a b"), "namespaces"),
        ],
    )
    def test_what_is_wrong_is_named(self, cli: Cli, options: tuple[str, ...], named: str) -> None:
        made = cli("token", "create", "dify", *options)
        assert made.code == 2
        assert named in made.err

    def test_through_a_server_no_token_is_made(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HINDSIGHT_STORE")
        monkeypatch.setenv("HINDSIGHT_URL", "http://127.0.0.1:8100")
        made = cli("token", "create", "dify")
        assert made.code == 2
        assert "--store" in made.err
