"""Badges to embed elsewhere. A badge is a file that ages, so it says until when it is true."""

from __future__ import annotations

from dataclasses import dataclass

from builder.site import certificates
from builder.site.certificates import Certificate
from builder.site.stacks import StackPage

CHARACTER = 6.6  # pixels of a letter of 11 pixels, on average; `textLength` makes the text this wide in every font
MARGIN = 10


@dataclass(frozen=True)
class Badge:
    """Two fields with text; `colour` is the background of the second."""

    label: str
    value: str
    colour: str

    @property
    def label_width(self) -> int:
        return round(len(self.label) * CHARACTER) + MARGIN

    @property
    def value_width(self) -> int:
        return round(len(self.value) * CHARACTER) + MARGIN


COLOURS = {"certified": "#176b3a", "expired": "#7a5200", "does not hold": "#a1261b", "not certified": "#57606a"}


def of_stack(stack: StackPage) -> Badge:
    """The badge of a stack: that of its best certificate."""
    return of_certificate(stack.name, certificates.best(stack.current))


def of_certificate(label: str, entry: Certificate | None) -> Badge:
    """The badge of a certificate, or of none."""
    if entry is None:
        return Badge(label, "not certified", COLOURS["not certified"])
    words = {
        "certified": f"certified until {entry.assessment.expires}",
        "expired": f"certificate expired {entry.assessment.expires}",
    }
    return Badge(
        label, words.get(entry.state, "certificate does not hold"), COLOURS.get(entry.state, COLOURS["does not hold"])
    )
