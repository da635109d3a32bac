from datetime import datetime, tzinfo

from apscheduler.triggers.base import BaseTrigger

class IntervalTrigger(BaseTrigger):
    def __init__(self, *, seconds: float, start_date: datetime, timezone: tzinfo) -> None: ...
