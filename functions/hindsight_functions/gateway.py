"""The local gateway: every function in one process, for one machine and for development."""

from __future__ import annotations

from hindsight_core.config import Settings
from hindsight_core.service import MemoryService
from hindsight_functions import forget, mcp, search, update, write
from hindsight_functions.aws import LambdaHandler
from hindsight_functions.http import Function, create_app

routes = [*write.routes, *search.routes, *update.routes, *forget.routes, *mcp.routes]


def gateway(settings: Settings | None = None, service: MemoryService | None = None) -> Function:
    """The app of all functions; see `create_app` for what is given and what is opened."""
    return create_app(
        routes, name="gateway", embedder=True, writes=True, settings=settings, service=service, lifespan=[mcp.lifespan]
    )


app = gateway()
handler = LambdaHandler(app)
