"""Late information: of two memories the one observed later is the news, whichever of them was stored first."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindsight_core.guards import RAISING, is_weak
from hindsight_core.likeness import likeness
from hindsight_core.models import Memory
from hindsight_core.pair_model import shipped
from hindsight_core.pairs import Candidate, PairDecision, order_of, weighed
from hindsight_core.relations import RELATIONS, Relation, only
from hindsight_core.screening import Screening
from hindsight_core.slots import read


def is_late(new: Memory, known: Memory) -> bool:
    """Whether what comes in was observed before what is known."""
    return order_of(new, known) == "older"


def news_first(new: Memory, known: Memory) -> tuple[Memory, Memory]:
    """Both, the news first; but a guess that comes late stays one, and is judged as if it were the news.

    So is what may be suppressed: whatever its age, it must not be learned again.
    """
    ever = known.status == "suppressed" or is_weak(new, known)
    return (known, new) if is_late(new, known) and not ever else (new, known)


class Turned(msgspec.Struct, frozen=True):
    """What the known one means for the late one; how probably something follows, where a `PairReader` may say more."""

    pair: PairDecision
    unread: float | None = None


def turned(
    new: Memory,
    vector: NDArray[np.float32] | None,
    known: Candidate,
    pair: PairDecision,
    said: NDArray[np.float32] | None = None,
    *,
    alone: bool,
) -> Turned:
    """Judge a late memory and a known one with their roles swapped; `pair` is the decision with the late one as news.

    Bystanders stay so, but for the records of tools. Where the late text speaks of a change itself ("I moved, my new
    address is …"), it may be heard better as the news: then the likelier supersession counts. A late text that says
    more than the known one is no duplicate of it, and a known guess puts nothing in doubt.
    """
    if news_first(new, known.old)[0] is new:
        return Turned(_moved(pair, "refine", "coexist"))
    late = Candidate(old=new, cosine=known.cosine, vector=vector)
    a, b = read(new.content), read(known.old.content)
    judge, unread = pair.evidence["judge"], None
    if judge in {"screen", "guards"}:
        heard = weighed(known.old, late, a, b, only("unrelated"), pair.concern, judge="guards")
        recorded = new.source == "tool" and not RAISING.isdisjoint(heard.evidence["guards"])
        return Turned(heard if recorded or judge == "guards" else pair)
    if judge == "rules" or vector is None or known.vector is None:
        found = weighed(known.old, late, a, b, None, None)
    else:
        model = shipped()
        assert model is not None  # who is judged by it
        screening = Screening(known.old, [late], model)
        screening.readings[0], screening.concerns[0] = a, pair.concern
        if alone or (new.key is not None and new.key == known.old.key):
            screening.single.add(0)
        told, news = model.projected(np.stack([vector, known.vector]))
        screening.score([0], [likeness(known.old, new, a, b)], told[None], news[None])
        (found,) = screening.decided({} if said is None else {new.id: said})
        unread = None if said is not None else screening.unread.get(new.id)
    if found.evidence["weak"]:
        found = _moved(found, "pending", "coexist")
    elif a.change and pair.probabilities["supersede"] > found.probabilities["supersede"]:
        found = _moved(pair, "refine", "coexist")
    elif pair.relation != "duplicate":
        found = _moved(found, "duplicate", "coexist")
    return Turned(found, unread)


def _moved(pair: PairDecision, name: Relation, to: Relation) -> PairDecision:
    odds = dict(pair.probabilities)
    odds[to] += odds[name]
    odds[name] = 0.0
    return msgspec.structs.replace(pair, probabilities=odds, relation=max(RELATIONS, key=lambda each: odds[each]))
