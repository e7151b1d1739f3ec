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
_MEANING = re.compile(r"[\\`*\[\]~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[#+=-]|^[0-9]+(?=[.)](\s|$))")
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
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
    """The text as it reads, in one line of Markdown or one cell: no HTML, link, image, emphasis, heading or cell.

    What stands between two backticks stays code.
    """
    parts = _CODE.split(line(text).strip())
    return "".join(code(part) if number % 2 else _escaped(part) for number, part in enumerate(parts))


def code(text: str) -> str:
    """The text as inline code of Markdown."""
    said = line(text)
    # Between backticks nothing can be escaped.
    plain = re.fullmatch(r"[^`<>&|\\]+", said) and said == said.strip()
    return f"`{said}`" if plain else f"<code>{_escaped(said)}</code>"


def _escaped(said: str) -> str:
    said = _MEANING.sub(_backslash, html.escape(said, quote=False))
    return _ENTITY.sub(lambda match: f"&#{ord(match[0])};", said)


def _backslash(match: re.Match[str]) -> str:
    return f"{match[0]}\\" if match[0].isdigit() else f"\\{match[0]}"


def block(text: str, language: str = "") -> list[str]:
    """The text as a block of code of Markdown: lines that no line of the text can end."""
    said = printable(text).rstrip()
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", said)), default=0))
    return [f"{fence}{language}", *said.split("\n"), fence]


def _shown(letter: str) -> str:
    if letter.isprintable() or letter in "\n\t":
        return letter
    return " " if unicodedata.category(letter) == "Zs" else UNPRINTABLE
