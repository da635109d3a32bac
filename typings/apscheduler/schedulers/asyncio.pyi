from collections.abc import Callable
from datetime import tzinfo

from apscheduler.executors.base import BaseExecutor
from apscheduler.job import Job
from apscheduler.triggers.base import BaseTrigger

class AsyncIOScheduler:
    def __init__(
        self, *, timezone: tzinfo, executors: dict[str, BaseExecutor], job_defaults: dict[str, object]
    ) -> None: ...
    def add_job(self, func: Callable[[], object], trigger: BaseTrigger, *, id: str) -> Job: ...
    def start(self) -> None: ...
    def shutdown(self, wait: bool = True) -> None: ...
