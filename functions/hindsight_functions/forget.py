"""The forget function: forgetting, and taking it back.

It needs no embedder: a query is held against words alone, and undoing the change of a text is left to the gateway.
"""

from __future__ import annotations

from litestar import delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from hindsight_core.models import ForgetMode
from hindsight_core.requests import (
    ForgetRequest,
    PageRequest,
    Reason,
    Request,
    RestoreRequest,
    SweepRequest,
    UndoRequest,
)
from hindsight_core.responses import (
    ForgetResponse,
    RunPage,
    RunReport,
    SweepReport,
    UndoResponse,
    UpdateResponse,
)
from hindsight_functions.aws import LambdaHandler
from hindsight_functions.call import Call
from hindsight_functions.http import create_app
from hindsight_functions.query import queried


class ForgetOne(Request, frozen=True, kw_only=True):
    """How to forget the memory that the path names."""

    mode: ForgetMode = "archive"
    reason: Reason = ""
    dry_run: bool = False
    bring_back: bool = False


@delete("/v1/memories/{memory_id:str}", status_code=200, **queried(ForgetOne))
async def forget_memory(
    memory_id: FromPath[str], asked: NamedDependency[ForgetOne], call: NamedDependency[Call]
) -> ForgetResponse:
    """Forget one memory: archive (can be restored), suppress, retract, or erase for good."""
    caller = await call.by(asked, "write")
    # An unknown id is a 404 here, while a selection that holds nobody is an empty answer.
    await call.service.get(memory_id, asked, caller)
    fields = {name: getattr(asked, name) for name in ForgetOne.__struct_fields__}
    return await call.service.forget(ForgetRequest(ids=(memory_id,), **fields), caller)


@post("/v1/forget", status_code=200)
async def forget_memories(data: JSONBody[ForgetRequest], call: NamedDependency[Call]) -> ForgetResponse:
    """Forget what ids, filters or a query select; `dry_run` only lists it, and `all` must be said."""
    return await call.service.forget(data, await call.by(data, "write"))


@post("/v1/memories/{memory_id:str}/restore", status_code=200)
async def restore_memory(
    memory_id: FromPath[str], data: JSONBody[RestoreRequest], call: NamedDependency[Call]
) -> UpdateResponse:
    """Bring a forgotten memory back."""
    return await call.service.restore(memory_id, data, await call.by(data, "write"))


@get("/v1/runs", **queried(PageRequest))
async def list_runs(asked: NamedDependency[PageRequest], call: NamedDependency[Call]) -> RunPage:
    """A page of the calls that changed memories, oldest first."""
    return await call.service.runs(asked, await call.by(asked, "read"))


@get("/v1/runs/{run_id:str}", **queried(Request))
async def get_run(run_id: FromPath[str], asked: NamedDependency[Request], call: NamedDependency[Call]) -> RunReport:
    """One run with every change it made."""
    return await call.service.run(run_id, asked, await call.by(asked, "read"))


@post("/v1/runs/{run_id:str}/undo", status_code=200)
async def undo_run(run_id: FromPath[str], data: JSONBody[UndoRequest], call: NamedDependency[Call]) -> UndoResponse:
    """Take a whole run back, except for memories that changed since; an erasure cannot be undone."""
    return await call.service.undo(run_id, data, await call.by(data, "write"))


@post("/v1/sweeps", status_code=200)
async def sweep(data: JSONBody[SweepRequest], call: NamedDependency[Call]) -> SweepReport:
    """Forget by the policies: what has expired, makes room, is idle or was archived long ago; promote the confirmed."""
    report = await call.service.sweep(data, await call.by(data, "admin"))
    call.metrics.swept(report)
    return report


routes = [forget_memory, forget_memories, restore_memory, list_runs, get_run, undo_run, sweep]
app = create_app(routes, name="forget", embedder=False)
handler = LambdaHandler(app)
