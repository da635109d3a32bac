"""A pytest plugin: a real OpenSearch node and a real Redis for the tests that ask for them.

Fixtures
    opensearch_url      a node of this test session (about ten seconds to start), or `HINDSIGHT_TEST_OPENSEARCH_URL`
    redis_url           a Redis of this test session, or `HINDSIGHT_TEST_REDIS_URL`
    opensearch_node     the handle of that node: `.url`, `.stop()`, `.start()`, `.kill()`; it runs again after the test
    redis_server        the same for Redis; what it held is gone after a stop

A machine that lacks what they need leaves those tests out and says so in the last lines of the run, with what to
install; with `HINDSIGHT_REQUIRE_SERVICES=1` they fail instead. Indices and keys are shared by the whole session: a
test that needs an empty one takes a name of its own.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Never

import pytest

# The checkout's root first: `localstack` is also the name of a package that may be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from localstack.layout import LayoutError, missing_tools
from localstack.node import opensearch
from localstack.redis_server import redis
from localstack.service import ServiceError, ServiceProcess, free_port

OPENSEARCH_VARIABLE = "HINDSIGHT_TEST_OPENSEARCH_URL"
REDIS_VARIABLE = "HINDSIGHT_TEST_REDIS_URL"
REQUIRE_VARIABLE = "HINDSIGHT_REQUIRE_SERVICES"
_LEFT_OUT = "Left out: "
_START_SECONDS = 180.0  # a busy machine is slow, not broken


def leave_out(reason: str) -> Never:
    """Leave the test out for lack of a service, or let it fail where services are required."""
    if os.environ.get(REQUIRE_VARIABLE) == "1":
        pytest.fail(f"{reason} ({REQUIRE_VARIABLE}=1 makes that a failure.)", pytrace=False)
    pytest.skip(_LEFT_OUT + reason)


@pytest.fixture(scope="session")
def _opensearch(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess | str]:
    """The session's node, or the address of one that somebody else runs."""
    if url := os.environ.get(OPENSEARCH_VARIABLE):
        yield url
        return
    if reason := missing_tools():
        leave_out(f"{reason} Or set {OPENSEARCH_VARIABLE} to a node that runs.")
    try:
        service = opensearch(free_port(), tmp_path_factory.mktemp("opensearch"), short_lived=True)
    except LayoutError as error:
        leave_out(f"{error}\nOr set {OPENSEARCH_VARIABLE} to a node that runs.")
    process = ServiceProcess(service)
    process.start(seconds=_START_SECONDS)
    try:
        yield process
    finally:
        process.kill()  # nobody reads its data again


@pytest.fixture(scope="session")
def _redis(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess | str]:
    """The session's Redis, or the address of one that somebody else runs."""
    if url := os.environ.get(REDIS_VARIABLE):
        yield url
        return
    try:
        service = redis(free_port(), tmp_path_factory.mktemp("redis"))
    except ServiceError as error:
        leave_out(f"{error} Or set {REDIS_VARIABLE} to a server that runs.")
    process = ServiceProcess(service)
    process.start(seconds=_START_SECONDS)
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture(scope="session")
def opensearch_url(_opensearch: ServiceProcess | str) -> str:
    return _opensearch if isinstance(_opensearch, str) else _opensearch.url


@pytest.fixture(scope="session")
def redis_url(_redis: ServiceProcess | str) -> str:
    return _redis if isinstance(_redis, str) else _redis.url


@pytest.fixture
def opensearch_node(_opensearch: ServiceProcess | str) -> Generator[ServiceProcess]:
    if isinstance(_opensearch, str):
        leave_out(f"this test stops OpenSearch, and {OPENSEARCH_VARIABLE} names one that is not ours. Unset it.")
    yield _opensearch
    # Started anew from here: a child ends with the thread that started it, and a test's threads end with the test.
    _opensearch.kill()
    _opensearch.start(seconds=_START_SECONDS)


@pytest.fixture
def redis_server(_redis: ServiceProcess | str) -> Generator[ServiceProcess]:
    if isinstance(_redis, str):
        leave_out(f"this test stops Redis, and {REDIS_VARIABLE} names one that is not ours. Unset it.")
    yield _redis
    _redis.start(seconds=_START_SECONDS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in the last lines what was left out for lack of a service, and how to get it."""
    reasons = Counter[str]()
    skipped: list[pytest.TestReport] = terminalreporter.getreports("skipped")
    for report in skipped:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _, found, reason = text.partition(_LEFT_OUT)
        if found:
            reasons[reason] += 1
    if not reasons:
        return
    terminalreporter.section("not tested here", yellow=True)
    for reason, count in reasons.items():
        terminalreporter.write_line(f"{count} test{'s' if count > 1 else ''} left out: {reason}", yellow=True)
    terminalreporter.write_line(f"{REQUIRE_VARIABLE}=1 makes that a failure.", yellow=True)
