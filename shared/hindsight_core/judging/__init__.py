"""The judge port: contested pairs in, rulings out. Rules decide without one, and wherever it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from hindsight_core.errors import ConfigurationError
from hindsight_core.relations import Relation

if TYPE_CHECKING:
    from hindsight_core.judging.phrasing import Phraser

__all__ = ["SAMPLE", "Judge", "Question", "Ruling", "open_judge", "open_phraser"]

Verdict: TypeAlias = Relation | Literal["unclear"]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a new memory means for an old one: both texts, and who said them."""

    old: str
    new: str
    old_source: str = "user"
    new_source: str = "user"


SAMPLE = Question(old="I live in Leeds.", new="I moved from Leeds to York.")
"""A question that is nobody's, for finding out whether a judge answers."""


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's answer to one question; `unclear` leaves the pair contested. `by` names the judge."""

    verdict: Verdict
    by: str


class Judge(Protocol):
    """Settles pairs. Safe to use from many tasks at once; the event loop stays free while it works."""

    @property
    def name(self) -> str:
        """What evidence calls it."""
        ...

    async def rule(self, questions: Sequence[Question]) -> list[Ruling]:
        """One ruling a question, in their order, from at most one call; no call without questions.

        Raises `ProviderUnavailable` when it cannot be reached, takes too long or answers nonsense, `MissingExtra` when
        its package is not installed. Nothing in the texts can change what it is asked or what it may answer.
        """
        ...

    async def aclose(self) -> None:
        """Releases threads and connections. Closing twice is fine."""
        ...


def open_judge(url: str, *, api_key: str = "", timeout: float = 10.0, tokens: int = 2000) -> Judge | None:
    """The judge that `url` names, None for an empty one; nothing is loaded or contacted before its first question.

    * `openai:MODEL@https://host/v1`: any endpoint that speaks OpenAI's `POST /chat/completions` with JSON schemas.
    * `sentence-transformers:NAME`: a cross-encoder for natural language inference, by name or path of its folder.

    `timeout` is in seconds for one call; `tokens` how many a call may take, question and answer.

    Raises `ConfigurationError` for an unknown or malformed URL, `MissingExtra` when a package is absent.
    """
    scheme, _, rest = url.strip().partition(":")
    match scheme:
        case "" if not rest:
            return None
        case "openai":
            from hindsight_core.endpoint import named
            from hindsight_core.judging.openai import OpenAIJudge

            if (endpoint := named(rest)) is None:
                raise _unknown(scheme)
            return OpenAIJudge(*endpoint, api_key=api_key, timeout=timeout, tokens=tokens)
        case "sentence-transformers" if rest:
            from hindsight_core.judging.nli import NliJudge

            return NliJudge(rest, timeout=timeout)
        case _:
            raise _unknown(scheme)


def open_phraser(url: str, *, api_key: str = "", timeout: float = 10.0, tokens: int = 2000) -> Phraser:
    """What words memories, by the chat model of the judge that `url` names; see `open_judge`.

    Raises `ConfigurationError` where that is no chat model.
    """
    from hindsight_core.endpoint import named

    scheme, _, rest = url.strip().partition(":")
    if scheme != "openai" or (endpoint := named(rest)) is None:
        raise ConfigurationError(
            "HINDSIGHT_CONSOLIDATE_WORDING: the judge is no chat model, which `judge` takes.",
            remedy="Set HINDSIGHT_JUDGE to openai:MODEL@https://host/v1, or leave the wording to `extract`.",
        )
    from hindsight_core.judging.chat import Chat
    from hindsight_core.judging.phrasing import Phraser

    return Phraser(Chat(*endpoint, api_key=api_key, timeout=timeout), tokens)


def _unknown(scheme: str) -> ConfigurationError:
    return ConfigurationError(
        f"There is no judge {scheme!r} of this form.",  # not the URL: somebody may have put a key into it
        remedy="Use openai:MODEL@https://host/v1 or sentence-transformers:NAME, or nothing.",
    )
