"""The local gateway: every function in one process, for one machine and for development."""

from __future__ import annotations

from hindsight_functions import forget, search, update, write
from hindsight_functions.aws import LambdaHandler
from hindsight_functions.http import create_app

routes = [*write.routes, *search.routes, *update.routes, *forget.routes]
app = create_app(routes, name="gateway", embedder=True)
handler = LambdaHandler(app)
