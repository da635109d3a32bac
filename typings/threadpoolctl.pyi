from contextlib import AbstractContextManager
from typing import Any, Literal

class ThreadpoolController:
    def __init__(self) -> None: ...
    def limit(
        self, *, limits: int | None = None, user_api: Literal["blas", "openmp"] | None = None
    ) -> AbstractContextManager[Any]: ...

def threadpool_info() -> list[dict[str, Any]]: ...
