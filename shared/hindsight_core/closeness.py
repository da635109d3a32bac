"""How likely two texts speak of one matter at all, in numbers: what tells bystanders from what is concerned."""

from __future__ import annotations

import math

from hindsight_core.slots import Reading

# Of so many neighbours at most it was learned.
_MANY = 16


def closeness(a: Reading, b: Reading, cosine: float, best: float, rank: int, count: int = 1) -> dict[str, float]:
    """How likely the two speak of one matter at all, among the neighbours of one new text.

    `best` is the highest cosine among them, `rank` this one's place by cosine, from 0, `count` how many they are.
    """
    shared = a.terms & b.terms
    both_state = bool(a.values and b.values)
    return {
        "cosine": cosine,
        "cosine_chinese": cosine if b.language == "zh" else 0.0,
        "chinese": float(b.language == "zh"),
        "behind": best - cosine,
        "rank": math.log1p(rank),
        "first": float(rank == 0),
        "count": math.log(min(count, _MANY)),
        "shared": float(min(4, len(shared))),
        "nothing_shared": float(not shared),
        "old_kept": len(shared) / max(1, len(a.terms)),
        "new_known": len(shared) / max(1, len(b.terms)),
        "longest_shared": float(min(10, max(map(len, shared), default=0))),
        "name_shared": float(bool(a.names & b.names)),
        "value_shared": float(both_state and bool(a.states & b.states)),
        "identifier_shared": float(both_state and bool(a.identifiers & b.identifiers)),
        "kin_shared": float(bool(a.kin & b.kin)),
        "kin_other": float(bool(a.kin) != bool(b.kin) or bool(a.kin and b.kin and not a.kin & b.kin)),
        "place_shared": float(bool(a.place & b.place)),
        "length_old": math.log1p(len(a.text)),
        "length_new": math.log1p(len(b.text)),
    }
