"""A tool's output as records: the elements of a JSON list, the rows of a table, lines of keys and values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from hindsight_core.sentences import stripped

WHOLE_TABLE = 800
_FIELDS = 20
_FIELD = re.compile(r"\s*(?P<key>[^\W\d_][\w-]*)\s*[=:：](?!//)\s*\S")
_RULE = re.compile(r"[\s|:+=-]+")
_SEPARATORS = (("|", re.compile(r"\s*\|\s*")), ("\t", re.compile(r"\t")), ("  ", re.compile(r" {2,}|\t")))
_COMMA = re.compile(r"\s*,\s*")
_COLUMN = re.compile(r"[^\W\d][\w .()/%#-]{0,30}")
_OPEN, _CLOSE = re.compile(r"\s*\[\s*"), re.compile(r"\s*(,|\])\s*")
_WORDY = re.compile(r"\w")
# A field of a JSON document whose value is a word, a number, or a list or object of them; `null` tells nothing.
_TOLD_FIELD = re.compile(
    r'"(?:[^"\\]|\\.)*"\s*:\s*(?:"(?:[^"\\]|\\.)+"|-?\d[\d.eE+-]*|true|false|\[[^\[\]{}]+\]|\{[^{}]+\})'
)
_HOLDING = ("hits", "results", "memories", "data", "items", "structuredContent")
_DECODER = json.JSONDecoder()


class Record(NamedTuple):
    """A slice of the output.

    `head` is the header of the table that a row comes from; `frame` says that it only holds records together.
    """

    start: int
    end: int
    frame: bool = False
    head: str | None = None


def records(text: str) -> list[Record]:
    """The records of an output in order; together they cover all words of it.

    A JSON document is one record, but each object of a list of objects (alone, or under the one key of a document that
    holds a list) is one by itself, and so are the fields before and after the list. A table of at most 800 characters
    is one record; in a longer one each row is. Neighbouring lines of single keys and their values are one record, every
    other line is one.
    """
    if text.lstrip()[:1] in {"{", "["}:
        return _json(text)
    lines: list[tuple[int, int]] = []
    at = 0
    for line in text.splitlines(keepends=True):
        bounds = stripped(text, at, at + len(line))
        lines.append(bounds or (at, at))
        at += len(line)
    return list(_blocks(text, lines))


def _blocks(text: str, lines: Sequence[tuple[int, int]]) -> Iterator[Record]:
    at = 0
    while at < len(lines):
        start, end = lines[at]
        if start == end:
            at += 1
            continue
        if rows := _table(text, lines, at):
            yield from _rows(text, lines[at : at + rows])
            at += rows
        elif fields := _fields(text, lines, at):
            yield Record(start, lines[at + fields - 1][1])
            at += fields
        else:
            yield Record(start, end)
            at += 1


def _table(text: str, lines: Sequence[tuple[int, int]], at: int) -> int:
    """How many lines from here on are a table: names of columns, then rows of as many cells; 0 for none."""
    head = text[slice(*lines[at])]
    for mark, separator in (*_SEPARATORS, (",", _COMMA)):
        columns = _cells(head, separator)
        if mark not in head or len(columns) < (3 if mark == "," else 2):
            continue
        if not all(_COLUMN.fullmatch(column) for column in columns):
            continue
        rows = 1
        for start, end in lines[at + 1 :]:
            line = text[start:end]
            if not _RULE.fullmatch(line) and len(_cells(line, separator)) != len(columns):
                break
            rows += 1
        while rows > 1 and not text[slice(*lines[at + rows - 1])]:
            rows -= 1
        if sum(not _RULE.fullmatch(text[slice(*line)]) for line in lines[at : at + rows]) > 1:
            return rows
    return 0


def _cells(line: str, separator: re.Pattern[str]) -> list[str]:
    return separator.split(line.strip("| \t")) if line.strip() else []


def _rows(text: str, lines: Sequence[tuple[int, int]]) -> Iterator[Record]:
    start, end = lines[0][0], lines[-1][1]
    if end - start <= WHOLE_TABLE:
        yield Record(start, end)
        return
    head = text[slice(*lines[0])]
    for number, (a, b) in enumerate(lines):
        frame = number == 0 or bool(_RULE.fullmatch(text[a:b]))
        yield Record(a, b, frame, None if frame else head)


def _fields(text: str, lines: Sequence[tuple[int, int]], at: int) -> int:
    """How many lines from here on are fields of one record, each with a key of its own; 0 where it is not two."""
    keys: set[str] = set()
    for start, end in lines[at : at + _FIELDS]:
        field = _FIELD.match(text[start:end])
        if field is None or field["key"] in keys:
            break
        keys.add(field["key"])
    return len(keys) if len(keys) > 1 else 0


def _json(text: str) -> list[Record]:
    whole = stripped(text, 0, len(text))
    found = _elements(text)
    if whole is None or len(found) < 2:
        return [] if whole is None else [Record(*whole)]
    edges = [whole[0], *(edge for element in found for edge in element), whole[1]]
    between = (stripped(text, a, b) for a, b in zip(edges[::2], edges[1::2], strict=True))
    frames = [piece for bounds in between if bounds for piece in _frame(text, *bounds)]
    return sorted([*frames, *(Record(a, b) for a, b in found)])


def _frame(text: str, start: int, end: int) -> Iterator[Record]:
    """What stands around a list: the fields beside it are a record, its name and the brackets are not."""
    fields = [match.span() for match in _TOLD_FIELD.finditer(text, start, end)]
    pieces = [(start, end, True)]
    if fields:
        first, last = fields[0][0], fields[-1][1]
        pieces = [(start, first, True), (first, last, False), (last, end, True)]
    for a, b, frame in pieces:
        bounds = stripped(text, a, b)
        if bounds is not None and _WORDY.search(text[slice(*bounds)]):
            yield Record(*bounds, frame=frame)


def recalls(text: str) -> bool:
    """Whether a tool's output is what a memory was asked for: memories that were recalled, and no news.

    JSON with the shape of a search (`hits` of memories, a `retrieval_id`), a list of memories, or a context block.
    """
    if text.lstrip()[:1] not in {"{", "["}:
        return False
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return _is_recalled(document)


def _is_recalled(document: object) -> bool:
    if isinstance(document, list):
        items = cast("list[object]", document)
        return bool(items) and all(_is_memory(item) for item in items)
    if not isinstance(document, dict):
        return False
    fields = cast("dict[str, object]", document)
    if "retrieval_id" in fields or "memory_ids" in fields or _is_memory(fields):
        return True
    return any(_is_recalled(fields[name]) for name in _HOLDING if isinstance(fields.get(name), (list, dict)))


def _is_memory(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    fields = cast("dict[str, object]", item)
    told = isinstance(fields.get("memory"), (str, dict)) and ("score" in fields or isinstance(fields["memory"], dict))
    return told or "memory_id" in fields or {"content", "memory_type"} <= fields.keys()


def _elements(text: str) -> list[tuple[int, int]]:
    """Where the objects of the document's list stand; none where it holds no list of objects alone, or is no JSON."""
    start = len(text) - len(text.lstrip())
    try:
        document, _ = _DECODER.raw_decode(text, start)
        lists = [start] if isinstance(document, list) else [at for at in _values(text, start) if text[at] == "["]
        if len(lists) != 1:
            return []
        found: list[tuple[int, int]] = []
        opening = _OPEN.match(text, lists[0])
        at = lists[0] if opening is None else opening.end()
        while text[at] == "{":
            _, end = _DECODER.raw_decode(text, at)
            found.append((at, end))
            closing = _CLOSE.match(text, end)
            if closing is None or closing[1] == "]":
                return found
            at = closing.end()
    except (ValueError, IndexError, RecursionError):
        pass
    return []


def _values(text: str, at: int) -> Iterator[int]:
    """Where the values of the object that begins at `at` begin."""
    at += 1
    while True:
        at += len(text[at:]) - len(text[at:].lstrip())
        if text[at] == "}":
            return
        _, at = _DECODER.raw_decode(text, at)
        at = text.index(":", at) + 1
        at += len(text[at:]) - len(text[at:].lstrip())
        yield at
        _, at = _DECODER.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
        if text[at] == ",":
            at += 1
