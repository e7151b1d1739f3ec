"""Foreign text made fit to show: what probes, tools, registries, package authors and files have written.

A terminal takes some characters for commands, and Markdown takes some for links, HTML and cells. Whatever is shown
passes through here; the console does that by itself.
"""

from __future__ import annotations

import html
import re
import unicodedata

UNPRINTABLE = "�"
LONGEST = 2000  # characters of one line that anybody reads

# `_` inside a word and `#` inside a line mean nothing to Markdown.
_MEANING = re.compile(r"[\\`*\[\]~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[#+=-]|^[0-9]+(?=[.)])")
# GitHub makes links of bare addresses and formulas between dollars; renderers differ in how a cell may hold a bar.
_ENTITY = re.compile(r":(?=//)|(?<=www)\.|[|$]", re.IGNORECASE)


def printable(text: str) -> str:
    """The text as it is, but for what a terminal obeys or hides: control characters, bidirectional overrides,
    zero-width characters, halves of surrogate pairs. Lines and tabs stay."""
    return text if text.isprintable() else "".join(map(_shown, text.replace("\r\n", "\n")))


def line(text: str, most: int = LONGEST) -> str:
    """The text as one line of at most `most` characters."""
    # Cut before and after: ten megabytes are neither walked through nor shown.
    said = printable(" ".join(text[: 4 * most].splitlines())).replace("\t", " ")
    return said if len(said) <= most and len(text) <= 4 * most else f"{said[: most - 1]}…"


def markdown(text: str) -> str:
    """The text as it reads, in one line of Markdown or one cell: no HTML, link, image, emphasis, heading or cell."""
    said = html.escape(line(text).strip(), quote=False)
    said = _MEANING.sub(lambda match: f"{match[0]}\\" if match[0].isdigit() else f"\\{match[0]}", said)
    return _ENTITY.sub(lambda match: f"&#{ord(match[0])};", said)


def code(text: str) -> str:
    """The text as inline code of Markdown."""
    plain = re.fullmatch(r"[^`<>&|\\]+", text) and text.isprintable() and text == text.strip() and len(text) <= LONGEST
    # Between backticks nothing can be escaped.
    return f"`{text}`" if plain else f"<code>{markdown(text)}</code>"


def block(text: str, language: str = "") -> list[str]:
    """The text as a block of code of Markdown: lines that no line of the text can end."""
    said = printable(text).rstrip()
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", said)), default=0))
    return [f"{fence}{language}", *said.split("\n"), fence]


def _shown(letter: str) -> str:
    if letter.isprintable() or letter in "\n\t":
        return letter
    return " " if unicodedata.category(letter) == "Zs" else UNPRINTABLE
