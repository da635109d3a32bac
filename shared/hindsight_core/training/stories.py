"""Stories to learn from: what people said over months, and which earlier lines each of theirs concerns.

A line of `stories*.jsonl` is a story as `hindsight eval dialogues` reads it, whose users' turns say two things more:
their `kind` ("skip" for what is not worth keeping) and `links`, which earlier turns of the user (`to`, counted from 1)
they concern, and `as` what. What is not linked is a bystander.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from hindsight_core.models import Kind, Memory
from hindsight_core.pair_model import Floats
from hindsight_core.relations import Relation

NEIGHBOURS = 16
_BYSTANDER: Relation = "unrelated"
Said: TypeAlias = Kind | Literal["skip"]


class Tie(msgspec.Struct, frozen=True):
    """What a line means for an earlier one, by its number among the user's lines, from 1."""

    to: int
    relation: Relation = msgspec.field(name="as")


class Turn(msgspec.Struct, frozen=True):
    role: str
    text: str
    kind: Said = "skip"
    links: tuple[Tie, ...] = ()


class Session(msgspec.Struct, frozen=True):
    at: datetime
    turns: tuple[Turn, ...]


class Story(msgspec.Struct, frozen=True):
    """A story, by the file that its writer filled."""

    id: str
    lang: str
    sessions: tuple[Session, ...]
    writer: str = ""

    @property
    def lines(self) -> list[tuple[datetime, Turn]]:
        """What the user said, in order."""
        return [(s.at, turn) for s in self.sessions for turn in s.turns if turn.role == "user"]


class Meeting(msgspec.Struct, frozen=True):
    """A line that is kept, and what holds when it is said: the nearest first, each with its cosine."""

    story: Story
    new: Memory
    near: tuple[tuple[Memory, float], ...]
    expect: tuple[Relation, ...]


def load(folders: list[Path]) -> list[Story]:
    """All stories of these folders, in the order of file names."""
    found: list[Story] = []
    for folder in folders:
        for file in sorted(folder.rglob("stories*.jsonl")):
            for line in file.read_text("utf-8").splitlines():
                story = msgspec.json.decode(line, type=Story)
                found.append(msgspec.structs.replace(story, writer=file.stem))
    return found


def texts(stories: list[Story]) -> list[str]:
    """Everything that is kept, once."""
    return list(dict.fromkeys(turn.text for s in stories for _, turn in s.lines if turn.kind != "skip"))


def meetings(story: Story, vectors: dict[str, Floats], model: str) -> Iterator[Meeting]:
    """Every kept line as a store would meet it that had understood all lines before it.

    Raises ValueError where a line is linked to one that is not before it, or that is not kept.
    """
    kept: set[int] = set()
    alive: dict[int, Memory] = {}
    for number, (at, turn) in enumerate(story.lines, 1):
        if turn.kind == "skip":
            continue
        new = _memory(number, at, turn, turn.kind, model)
        links: dict[int, Relation] = {link.to: link.relation for link in turn.links}
        if not links.keys() <= kept:
            raise ValueError(f"{story.writer}: {story.id}: line {number} is linked to what is not kept before it")
        kept.add(number)
        cosines = [(float(vectors[old.content] @ vectors[turn.text]), n) for n, old in alive.items()]
        nearest = sorted(cosines, key=lambda each: (-each[0], each[1]))[:NEIGHBOURS]
        if nearest:
            yield Meeting(
                story=story,
                new=new,
                near=tuple((alive[n], cosine) for cosine, n in nearest),
                expect=tuple([links.get(n, _BYSTANDER) for _, n in nearest]),
            )
        for n, relation in links.items():
            if relation in {"supersede", "refine"}:
                alive.pop(n, None)
        if "duplicate" not in links.values():
            alive[number] = new


def _memory(number: int, at: datetime, turn: Turn, kind: Kind, model: str) -> Memory:
    guess = kind == "speculation"
    return Memory(
        id=f"{number:04}",
        namespace="training",
        content=turn.text,
        source="user",
        confidence=0.5 if guess else 1.0,
        kind=kind,
        status="pending" if guess else "active",
        memory_type="episodic" if kind == "event" else "semantic",
        valid_from=at,
        observed_at=at,
        created_at=at,
        updated_at=at,
        embedding_model=model,
    )
