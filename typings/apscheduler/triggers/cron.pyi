from datetime import tzinfo
from typing import Self

from apscheduler.triggers.base import BaseTrigger

class CronTrigger(BaseTrigger):
    @classmethod
    def from_crontab(cls, expr: str, timezone: tzinfo | None = None) -> Self: ...
