"""Lines over a common axis, as SVG in one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from hindsight_core.benchmark.page import COLOURS, STYLE

_LEFT, _WIDE, _HIGH = 70, 640, 200


def page(title: str, intro: Sequence[str], plots: Sequence[str]) -> str:
    """The whole file."""
    said = "".join(f"<p>{escape(line)}</p>" for line in intro)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{said}"
        f"{''.join(plots)}</body></html>"
    )


def plot(label: str, across: str, at: Sequence[float], lines: Mapping[str, Sequence[float]], top: float = 0.0) -> str:
    """Lines by their names, from 0 up; `at` are their places on the axis `across`."""
    highest = max(top, *(max(values) for values in lines.values()), 1e-9) * 1.05
    first, last = at[0], max(at[-1], at[0] + 1e-9)

    def x(place: float) -> float:
        return _LEFT + _WIDE * (place - first) / (last - first)

    def y(value: float) -> float:
        return 20 + _HIGH * (1 - value / highest)

    drawn = [f"<h2>{escape(label)}</h2><svg viewBox='0 0 {_LEFT + _WIDE + 20} {_HIGH + 60}' role='img'>"]
    for part in range(5):
        value = highest * part / 4
        drawn.append(f"<line x1='{_LEFT}' x2='{_LEFT + _WIDE}' y1='{y(value)}' y2='{y(value)}' stroke='#8884'/>")
        drawn.append(f"<text x='{_LEFT - 6}' y='{y(value) + 4}' text-anchor='end'>{value:,.4g}</text>")
    drawn += [
        f"<text x='{x(place)}' y='{_HIGH + 38}' text-anchor='middle'>{place:,.4g}</text>"
        for place in at[:: max(1, len(at) // 8)]
    ]
    drawn.append(f"<text x='{_LEFT + _WIDE / 2}' y='{_HIGH + 56}' text-anchor='middle'>{escape(across)}</text>")
    for number, (name, values) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in zip(at, values, strict=True))
        drawn.append(f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='2'/>")
        drawn.append(f"<text x='{_LEFT + 8}' y='{34 + 15 * number}' style='fill:{colour}'>{escape(name)}</text>")
    return "".join(drawn) + "</svg>"
