"""The command that looks for faults: settings, store, embedder, calibration, port, and what to do about each."""

from __future__ import annotations

import difflib
import os
import platform
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from rich.table import Table
from rich.text import Text

from hindsight_core import config
from hindsight_core.access import check_bind
from hindsight_core.cli import tables
from hindsight_core.cli.commands import DONE, NOTHING, command
from hindsight_core.cli.serve import listen, tokens_exist
from hindsight_core.cli.target import Target
from hindsight_core.config import Settings
from hindsight_core.errors import HindsightError, ProviderUnavailable
from hindsight_core.home import local_path
from hindsight_core.release import release

Verdict: TypeAlias = Literal["ok", "note", "fault"]
# Variables that are no settings of the server: the command line's own, and those of development.
_OTHERS = (config.URL_VARIABLE, config.TOKEN_VARIABLE, "HINDSIGHT_STACK_", "HINDSIGHT_TEST_", "HINDSIGHT_REQUIRE_")
_LITTLE_SPACE = 200 << 20
_VERDICTS: dict[str, Verdict] = {"ok": "ok", "degraded": "note", "down": "fault"}
_STYLES = {"ok": "green", "note": "yellow", "fault": "red"}


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    what: str
    verdict: Verdict
    detail: str
    remedy: str = ""


@command("doctor")
async def doctor(target: Target) -> int:
    """Look for what is wrong and say what to do; exits with 1 when something is."""
    checks = [check async for check in _checks(target)]
    if target.as_json:
        tables.say_json(checks)
    else:
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        for check in checks:
            detail = Text(check.detail)
            if check.remedy:
                detail.append(f"\n{check.remedy}", _STYLES[check.verdict])
            table.add_row(Text(check.verdict, _STYLES[check.verdict]), check.what, detail)
        tables.console().print(table)
    return NOTHING if any(check.verdict == "fault" for check in checks) else DONE


async def _checks(target: Target) -> AsyncIterator[Check]:
    yield Check("release", "ok", f"{release()} on Python {platform.python_version()}, {platform.system()}")
    for name in _unknown(os.environ.keys()):
        near = difflib.get_close_matches(name, [variable for variable, _, _ in config.table()], n=1)
        remedy = f"Did you mean {near[0]}?" if near else "Unset it, or see the settings in the README."
        yield Check("settings", "fault", f"{name} is no setting.", remedy)
    try:
        settings = target.settings()
    except HindsightError as exc:
        yield _fault("settings", exc)
        return
    yield Check("settings", "ok", f"namespace {settings.namespace}, log level {settings.log_level}")
    if target.url is not None:
        yield await _server(target.url, target.token)
        return
    tokens = False
    with suppress(HindsightError):  # what is wrong with the store is said below
        tokens = await tokens_exist(settings, wait=False)
        yield Check("tokens", "ok", "every request needs one" if tokens else "none: this machine alone is answered")
    yield _port(settings, tokens=tokens)
    async for check in _store_and_embedder(settings):
        yield check


def _unknown(names: Iterable[str]) -> list[str]:
    known = {variable for variable, _, _ in config.table()}
    ours = (name for name in names if name.startswith(config.PREFIX) and not name.startswith(_OTHERS))
    return sorted(name for name in ours if name not in known)


async def _server(url: str, token: str | None) -> Check:
    from hindsight_core.client import AsyncHindsight

    try:
        async with AsyncHindsight(url, token=token) as client:
            readiness = await client.ready()
    except HindsightError as exc:
        return _fault("server", exc)
    wrong = [component for component in readiness.components if component.status != "ok"]
    if not wrong:
        return Check("server", "ok", f"{url} is ready")
    detail = "; ".join(f"{component.name}: {component.detail}" for component in wrong)
    verdict: Verdict = "note" if readiness.ready else "fault"
    return Check("server", verdict, detail, " ".join(component.remedy for component in wrong))


# A server of ours answers at once; whatever else listens there may never.
_PATIENCE = 2.0


def _port(settings: Settings, *, tokens: bool) -> Check:
    try:
        check_bind(settings.host, tokens=tokens)
        listen(settings.host, settings.port).close()
    except HindsightError as exc:
        if _serves(settings):
            return Check("port", "ok", f"{settings.host}:{settings.port} is served by Hindsight")
        return _fault("port", exc)
    return Check("port", "ok", f"{settings.host}:{settings.port} is free")


def _serves(settings: Settings) -> bool:
    from hindsight_core.client import Hindsight

    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        with Hindsight(f"http://{host}:{settings.port}", timeout=_PATIENCE) as client:
            client.ready()
    except HindsightError:
        return False
    return True


async def _store_and_embedder(settings: Settings) -> AsyncIterator[Check]:
    from hindsight_core.service import open_service

    calibration = _calibration(settings)
    if calibration is not None:
        yield calibration
        if calibration.verdict == "fault":
            return  # nothing that embeds can be opened
    path = local_path(settings.store)
    if path is not None:
        folder = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
        free = shutil.disk_usage(folder).free
        if free < _LITTLE_SPACE:
            yield Check(
                "disk", "fault", f"{free >> 20} MiB are free at {folder}.", "Make room, or set HINDSIGHT_STORE."
            )
        if not path.exists():
            if os.access(folder, os.W_OK):
                yield Check("store", "ok", f"{path} is made with the first memory")
            else:
                yield Check("store", "fault", f"{folder} cannot be written to.", "Set HINDSIGHT_STORE to another path.")
            judge = await _judge(settings) if settings.judge else None
            try:
                # What a service is made of is read and opened with the first call.
                await open_service(settings, embedder=False).aclose()
            except HindsightError as exc:
                fault = _fault("settings", exc)
                if judge is None or judge.detail != fault.detail:  # the judge's own is told once
                    yield fault
            yield await _embedder(settings)
            if settings.redis:
                yield await _cache(settings)
            if judge is not None:
                yield judge
            return
    try:
        service = open_service(settings)
    except HindsightError as exc:
        yield _fault("embedder" if calibration is None else "settings", exc)
        return
    try:
        await service.start()
        for component in (await service.ready()).components:
            verdict = _VERDICTS[component.status]
            yield Check(component.name, verdict, component.detail, component.remedy)
    except HindsightError as exc:
        yield _fault("store and embedder", exc)
    finally:
        await service.aclose()
    if settings.judge:
        yield await _judge(settings)


def _calibration(settings: Settings) -> Check | None:
    """Whether the calibration can be read, and where it comes from; None where the embedder itself is at fault."""
    from hindsight_core.embedding import open_model
    from hindsight_core.embedding.calibration import read

    try:
        model = open_model(settings.embedder, dimension=settings.embedder_dimension or None)
    except HindsightError:
        return None
    named = settings.embedder_calibration
    try:
        found = read(Path(named) if named else None, model=model.name)
    except HindsightError as exc:
        return _fault("calibration", exc)
    if found is None:
        return Check("calibration", "ok", "measured at every start; `hindsight calibrate` keeps it in a file")
    return Check("calibration", "ok", f"cosines from {found.lo:g} to {found.hi:g}, {named or 'as shipped'}")


async def _embedder(settings: Settings) -> Check:
    from hindsight_core.assembly import embedder_of

    try:
        embedder = embedder_of(settings)
        await embedder.embed(["ready?"], "query")
        name = embedder.identity.name
        await embedder.aclose()
    except HindsightError as exc:
        return _fault("embedder", exc)
    return Check("embedder", "ok", name)


async def _judge(settings: Settings) -> Check:
    """Asks it one question: whether it answers as it must can be known in no other way."""
    from hindsight_core.judging import SAMPLE, open_judge

    try:
        judge = open_judge(
            settings.judge, api_key=settings.judge_key, timeout=settings.judge_timeout, tokens=settings.judge_tokens
        )
        assert judge is not None
        try:
            (ruling,) = await judge.rule([SAMPLE])
        finally:
            await judge.aclose()
    except ProviderUnavailable as exc:  # rules go on without it
        return Check("judge", "note", exc.detail, exc.remedy)
    except HindsightError as exc:
        return _fault("judge", exc)
    return Check("judge", "ok", f"{ruling.by} settles what is contested")


async def _cache(settings: Settings) -> Check:
    from hindsight_core.cache import open_cache

    try:
        cache = open_cache(settings.redis, timeout=settings.redis_timeout)
        try:
            await cache.start()
            found = await cache.check()
        finally:
            await cache.aclose()
    except HindsightError as exc:
        return _fault("cache", exc)
    return Check(found.name, _VERDICTS[found.status], found.detail, found.remedy)


def _fault(what: str, error: HindsightError) -> Check:
    return Check(what, "fault", error.detail, error.remedy)
