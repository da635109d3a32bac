"""What is said of a field that takes one of a few values."""

from __future__ import annotations

import pytest

from hindsight_core.benchmark.configuration import Configuration
from hindsight_core.decoding import decode
from hindsight_core.errors import InvalidInput
from hindsight_core.requests import SearchRequest, WriteRequest

STATUSES = "active, archived, pending, retracted, superseded, suppressed"


@pytest.mark.parametrize(
    ("kind", "body", "field", "values"),
    [
        (SearchRequest, '{"query": "x", "profile": "quick"}', "profile", "companion, default, task"),
        (SearchRequest, '{"query": "x", "filters": {"status": "new"}}', "filters.status", STATUSES),
        (SearchRequest, '{"query": "x", "filters": {"status": ["new"]}}', "filters.status[0]", STATUSES),
        (
            WriteRequest,
            '{"messages": [{"role": "me", "text": "x"}]}',
            "messages[0].role",
            "assistant, system, tool, user",
        ),
        (
            Configuration,
            '{"weights": {"half_lives": {"old": 1}}}',
            "weights.half_lives",
            "episodic, semantic, working",
        ),
        (list[SearchRequest], '[{"query": "x", "mode": "never"}]', "[0].mode", "always, auto"),
        (dict[str, SearchRequest], '{"a": {"query": "x", "mode": "never"}}', "a.mode", "always, auto"),
    ],
)
def test_a_value_that_is_none_of_them_is_answered_with_all_of_them(
    kind: type[object], body: str, field: str, values: str
):
    with pytest.raises(InvalidInput) as caught:
        decode(body.encode(), kind)
    (fault,) = caught.value.errors
    assert fault.field == field
    assert fault.message.endswith(f" is none of {values}")
