"""A report as one HTML file that needs nothing else: tables, and plots drawn as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from hindsight_core.benchmark import tables
from hindsight_core.benchmark.measures import Estimate
from hindsight_core.benchmark.report import Report, Result, Row
from hindsight_core.benchmark.tables import LABELS, estimate
from hindsight_core.benchmark.wording import probability

_PLOTTED = ("recall_at_10", "ndcg_at_10")
_DROPPED = 100
COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2", "#65a30d", "#be185d")
_LEFT, _WIDE, _BAR, _GAP = 170, 560, 14, 12
STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #888; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
small, .soft { color: var(--soft); }
b.better { color: #059669; } b.worse { color: #dc2626; }
svg { display: block; margin: 1rem 0; max-width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
pre { overflow-x: auto; }
"""


def page(report: Report) -> str:
    """The report as HTML."""
    names = [configuration.name for configuration in report.configurations]
    where = f"Hindsight {report.version}; {report.machine}; store: {report.store}; {report.asked}"
    how = f"Bars end in 95 % intervals (bootstrap over the questions, seed {report.seed})."
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>Retrieval</title><style>{STYLE}</style></head><body><h1>Retrieval</h1>",
        f"<p>{escape(where)}; at most {report.memory_mib:.0f} MiB, all configurations together.</p>",
        f"<p class='soft'>{how} p: paired randomisation test, two-sided.</p>",
        _legend(names, report.described),
    ]
    for measured in report.sets:
        results = [result for result in report.results if result.data == measured.name]
        parts.append(f"<h2>{escape(measured.name)}</h2>")
        parts += [f"<p>{escape(line)}</p>" for line in measured.lines(_DROPPED)]
        parts += [_plot(results, names, field, LABELS[field]) for field in _PLOTTED]
        parts += [_table(results), _compared(results)]
    parts.append("<h2>Time</h2>" + _time(report.results))
    parts.append("</body></html>")
    return "".join(parts)


def _legend(names: Sequence[str], described: dict[str, str]) -> str:
    return "".join(
        f"<p><span style='color:{_colour(place)}'>■</span> {escape(name)} <small>{escape(described[name])}</small></p>"
        for place, name in enumerate(names)
    )


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _plot(results: Sequence[Result], names: Sequence[str], field: str, label: str) -> str:
    """Horizontal bars: kinds from top to bottom, in each the configurations; whiskers are the intervals."""
    kinds = [row.kind for row in results[0].rows]
    group = len(results) * _BAR + _GAP
    high = len(kinds) * group + 40
    drawn = [f"<svg viewBox='0 0 {_LEFT + _WIDE + 50} {high}' width='{_LEFT + _WIDE + 50}' role='img'>"]
    drawn.append(f"<title>{label}</title><text x='0' y='14' font-weight='600'>{label}</text>")
    for percent in range(0, 101, 20):
        x = _LEFT + _WIDE * percent / 100
        drawn.append(f"<line x1='{x}' x2='{x}' y1='20' y2='{high - 18}' stroke='#8884'/>")
        drawn.append(f"<text x='{x}' y='{high - 4}' text-anchor='middle'>{percent}</text>")
    for number, kind in enumerate(kinds):
        top = 24 + number * group
        drawn.append(
            f"<text x='{_LEFT - 8}' y='{top + len(results) * _BAR / 2 + 4}' text-anchor='end'>{escape(kind)}</text>"
        )
        for place, result in enumerate(results):
            found = estimate(result.rows[number].summary, field)
            drawn.append(_bar(found, top + place * _BAR, _colour(names.index(result.configuration))))
    return "".join(drawn) + "</svg>"


def _bar(found: Estimate, top: float, colour: str) -> str:
    middle = top + (_BAR - 3) / 2
    low, value, high = (_LEFT + _WIDE * share for share in (found.low, found.value, found.high))
    return (
        f"<rect x='{_LEFT}' y='{top}' width='{value - _LEFT:.1f}' height='{_BAR - 3}' fill='{colour}' "
        f"fill-opacity='.75'/><line x1='{low:.1f}' x2='{high:.1f}' y1='{middle}' y2='{middle}' stroke='currentColor'/>"
        f"<text x='{high + 5:.1f}' y='{middle + 4}'>{found.value * 100:.1f}</text>"
    )


def _table(results: Sequence[Result]) -> str:
    head = ["kind", "configuration", "questions", *LABELS.values()]
    rows: list[list[str]] = []
    for number, row in enumerate(results[0].rows):
        for result in results:
            found = result.rows[number].summary
            cells = [_interval(estimate(found, field)) for field in LABELS]
            rows.append([escape(row.kind), escape(result.configuration), f"{found.questions:,}", *cells])
    return _rows(head, rows)


def _compared(results: Sequence[Result]) -> str:
    if len(results) < 2:
        return ""
    head = ["kind", f"less {escape(results[0].configuration)}", *LABELS.values()]
    rows = [
        [escape(row.kind), escape(result.configuration), *_differences(row)]
        for number, _ in enumerate(results[0].rows)
        for result in results[1:]
        for row in [result.rows[number]]
    ]
    return _rows(head, rows)


def _differences(row: Row) -> Iterator[str]:
    for field in LABELS:
        found = (row.against_first or {})[field]
        text = f"{found.estimate.value * 100:+.1f}"
        if found.p < 0.05:
            text = f"<b class='{'better' if found.estimate.value > 0 else 'worse'}'>{text}</b>"
        yield f"{text} <small>{escape(probability(found.p))}</small>"


def _time(results: Sequence[Result]) -> str:
    head, rows = tables.times(results)
    cells = [[escape(cell) for cell in row] for row in rows]
    return "<p class='soft'>Milliseconds; searches without the question's embedding.</p>" + _rows(head, cells)


def _interval(found: Estimate) -> str:
    return f"{found.value * 100:.1f} <small>{found.low * 100:.1f}–{found.high * 100:.1f}</small>"


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>{body}</table>"
