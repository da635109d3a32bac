"""The tools that agents call over MCP, each in a module of its own; none of them knows the protocol."""

from __future__ import annotations

from hindsight_functions.tools import contexts, forgetting, listing, searching, updating, writing
from hindsight_functions.tools.tool import Tool

TOOLS: tuple[Tool, ...] = (
    writing.TOOL,
    searching.TOOL,
    contexts.TOOL,
    updating.TOOL,
    forgetting.TOOL,
    listing.TOOL,
)
