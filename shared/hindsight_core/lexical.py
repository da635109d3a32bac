"""The one tokeniser, and the term weights that both stores share.

English words are lower-cased and stemmed (porter2), Chinese, Japanese and Korean runs become character bigrams.
BM25 is `Σ idf(t) · impact(t)`, without the (k1 + 1) factor, with a constant average length so that a stored impact
never changes: `impact = f / (f + k1·(1 − b + b·length/L))`, `idf = ln(1 + (N − n + 0.5) / (n + 0.5))` over the
namespace's memories that have a text, whatever their status (Robertson and Zaragoza, 2009).
"""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections import Counter
from functools import cache
from importlib import resources

import Stemmer

K1 = 0.9
B = 0.4
AVERAGE_LENGTH = 16.0
MAX_TOKEN_LENGTH = 64

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003134f"
_RUNS = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:['’][^\W\d_{_CJK}]+)*")
_IS_CJK = re.compile(rf"[{_CJK}]")
_local = threading.local()


@cache
def stop_words() -> frozenset[str]:
    """Words of every language that carry no topic: articles, pronouns, auxiliaries, question words."""
    found: set[str] = set()
    for folder in resources.files("hindsight_core.language").iterdir():
        file = folder / "stopwords.txt"
        if file.is_file():
            lines = file.read_text("utf-8").splitlines()
            found.update(word for line in lines for word in line.split() if not line.startswith("#"))
    return frozenset(found)


@cache
def _irregular() -> dict[str, tuple[str, ...]]:
    """By the stem of one form of an irregular word: the stems of all its forms."""
    found: dict[str, tuple[str, ...]] = {}
    for folder in resources.files("hindsight_core.language").iterdir():
        file = folder / "irregular.txt"
        for line in file.read_text("utf-8").splitlines() if file.is_file() else ():
            forms = () if line.startswith("#") else tuple(dict.fromkeys(tokens(line)))
            found.update((form, tuple(dict.fromkeys((*found.get(form, ()), *forms)))) for form in forms)
    return found


def forms(term: str) -> tuple[str, ...]:
    """The term, then those of the other forms of an irregular word: `go`, `went`, `gone`."""
    return (term, *(other for other in _irregular().get(term, ()) if other != term))


def stem(word: str) -> str:
    """An English word's stem (porter2)."""
    # A stemmer keeps state between calls, so each thread has its own.
    stemmer: Stemmer.Stemmer | None = getattr(_local, "stemmer", None)
    if stemmer is None:
        stemmer = _local.stemmer = Stemmer.Stemmer("english")
    return stemmer.stemWord(word)


def tokens(text: str) -> list[str]:
    """The terms of a text in order, repeats kept. Never raises; an unreadable text has none."""
    return [term for run in runs(text) for term in terms_of(run)]


def runs(text: str) -> list[str]:
    """What `tokens` splits a text into first, lower-cased: words, and stretches written without spaces."""
    found: list[str] = _RUNS.findall(unicodedata.normalize("NFKC", text).lower())
    return found


def terms_of(run: str) -> list[str]:
    """The terms of one of these."""
    stops = stop_words()
    if _IS_CJK.match(run):
        grams = [run[i : i + 2] for i in range(len(run) - 1)] or [run]
        return [gram for gram in grams if gram not in stops]
    word = run.replace("’", "'")
    if word in stops:
        return []
    word = word.removesuffix("'s")
    pieces = (piece for piece in word.split("'") if piece and piece not in stops)
    return [stem(piece[:MAX_TOKEN_LENGTH]) for piece in pieces]


def impacts(terms: list[str]) -> dict[str, float]:
    """Each distinct term's share of BM25 in a field of these terms, in (0, 1); multiply by `idf` and sum."""
    length = K1 * (1.0 - B + B * len(terms) / AVERAGE_LENGTH)
    return {term: f / (f + length) for term, f in Counter(terms).items()}


def idf(documents: int, containing: int) -> float:
    """How rare a term is among `documents` texts of which `containing` have it; above 0."""
    return math.log(1.0 + (documents - containing + 0.5) / (containing + 0.5))
