"""When each policy is due: cron lines and intervals, in UTC, so that all replicas speak of the same slots."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import msgspec
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from hindsight_core.durations import duration
from hindsight_core.errors import ConfigurationError, InvalidInput
from hindsight_core.requests import Policy

DEFAULTS: dict[Policy, str] = {
    "expire": "*/15 * * * *",
    "promote": "20 * * * *",
    "idle": "10 3 * * *",
    "evict": "40 * * * *",
    "tasks": "50 3 * * *",
    "purge": "30 3 * * *",
    "consolidate": "0 4 * * *",
    "logs": "20 4 * * *",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def schedules(setting: str) -> dict[Policy, BaseTrigger]:
    """The trigger of each policy by `HINDSIGHT_SCHEDULES`: crontab lines, durations, or "" for a policy left out.

    Raises `ConfigurationError` naming what is wrong.
    """
    try:
        given = msgspec.json.decode(setting or "{}", type=dict[Policy, str])
    except msgspec.DecodeError as exc:
        raise ConfigurationError(
            f"HINDSIGHT_SCHEDULES: {exc}.",
            remedy=f'Give a JSON object such as {{"expire": "*/5 * * * *", "idle": ""}}; policies: '
            f"{', '.join(get_args(Policy))}.",
        ) from exc
    wanted: dict[Policy, str] = {**DEFAULTS, **given}
    return {policy: _trigger(policy, when) for policy, when in wanted.items() if when}


def _trigger(policy: Policy, when: str) -> BaseTrigger:
    try:
        if " " in when.strip():
            return CronTrigger.from_crontab(when, timezone=UTC)
        # Counted from one instant for all, not from when a process was started.
        return IntervalTrigger(seconds=duration(when, policy).total_seconds(), start_date=_EPOCH, timezone=UTC)
    except (ValueError, InvalidInput) as exc:
        raise ConfigurationError(
            f"HINDSIGHT_SCHEDULES: {policy}: {when!r} is neither a cron line nor a duration.",
            remedy="Use a form such as `*/15 * * * *` or `30s`.",
        ) from exc
