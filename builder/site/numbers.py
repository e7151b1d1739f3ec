"""The rows of a probe's numbers. A site has millions of them, which a template would take most of its time for.

Everything is escaped here that a template would escape by itself: what a certificate says may be a stranger's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from markupsafe import Markup, escape

from builder.base import quantities, text
from builder.certify.certificate import Measurement, ProbeResult
from builder.site import markup, pictures

Place = tuple[str, str]  # a probe and a number of it


@dataclass(frozen=True)
class Trail:
    """A number in earlier certificates and this one: the points of its line, its least and its largest value."""

    points: str
    least: tuple[float, str]
    most: tuple[float, str]


def rows(probe: ProbeResult, trails: Mapping[Place, Trail]) -> Markup:
    """A row for each number of a probe. What is around them says of which probe they are (`data-of`)."""
    return Markup(
        "\n".join(
            _row(number, f"measurements/{place}", trails.get((probe.name, number.name)))
            for place, number in enumerate(probe.measurements)
        )
    )


def _row(number: Measurement, at: str, trail: Trail | None) -> str:
    head = ' class="headline"' if number.headline else ""
    unit = f" {_line(number.unit, 30)}" if number.unit else ""
    limits = " ".join(
        f"{quantities.SIGNS[kind]} {markup.element(limit, f'{at}/bound/{kind}')}"
        for kind, limit in (number.bound or {}).items()
    )
    picture = pictures.drawn(pictures.bullet(number.value, number.bound))
    return (
        f'<tr{head}><th scope="row">{_line(number.name, 80)}</th>'
        f'<td class="number">{markup.element(number.value, f"{at}/value")}{unit}</td><td class="number">{limits}</td>'
        f"<td>{picture}</td><td>{_moved(trail) if trail else ''}</td><td>{_why(number.why)}</td></tr>"
    )


def _moved(trail: Trail) -> str:
    ends = [markup.element(value, at) for value, at in (trail.least, trail.most)]
    return f'{pictures.drawn_line(trail.points)}<span class="vh">from {ends[0]} to {ends[1]}</span>'


# Names, units and reasons are the suite's: the same ones in every certificate.
@lru_cache(maxsize=4096)
def _line(value: str, most: int) -> str:
    return str(escape(text.line(value, most)))


@lru_cache(maxsize=4096)
def _why(value: str) -> str:
    return str(markup.inline(text.line(value, 300)))
