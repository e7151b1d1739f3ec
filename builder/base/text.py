"""Makes foreign text safe to show: the output of probes, tools and registries, and what package authors write.

A terminal executes some characters, and Markdown reads some as links, HTML or cells. All text that is shown passes
through here; the console does so by itself.
"""

from __future__ import annotations

import html
import re
import shlex
import unicodedata
from collections.abc import Callable
from pathlib import PurePath

UNPRINTABLE = "�"
LONGEST = 2000  # characters of one line

# `_` inside a word and `#` inside a line have no meaning in Markdown.
_MEANING = re.compile(r"[\\`*\[\]~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[#+=-]|^[0-9]+(?=[.)](\s|$))")
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# GitHub turns bare addresses into links and text between dollars into formulas; renderers differ on bars in cells.
_ENTITY = re.compile(r":(?=//)|(?<=www)\.|[|$]", re.IGNORECASE)

# A forge tells whom a text names, and closes the issue whose number comes after a word such as "fixes"; not in code.
_CALL = re.compile(r"@(?=\\?[A-Za-z0-9_-])|(?<!&)#(?=[0-9])|\bGH-(?=[0-9])", re.IGNORECASE)
_GAP = "&#8203;"  # a space without a width


def printable(text: str) -> str:
    """The text without what a terminal executes or hides: control characters, bidirectional overrides, zero-width
    characters, halves of surrogate pairs. Line breaks and tabs stay."""
    return text if text.isprintable() else "".join(map(_shown, text.replace("\r\n", "\n")))


def line(text: str, most: int = LONGEST) -> str:
    """The text as one line of at most `most` characters."""
    # Cut before and after, so that ten megabytes are neither processed nor shown.
    shown = printable(" ".join(text[: 4 * most].splitlines())).replace("\t", " ")
    return shown if len(shown) <= most and len(text) <= 4 * most else f"{shown[: most - 1]}…"


def word(value: object) -> str:
    """Foreign text or a path as one word of a shell command that a person copies: quoted where a shell would read more
    than a word, without control characters, and a path never an option."""
    shown = line(str(value))
    return shlex.quote(f"./{shown}" if isinstance(value, PurePath) and shown.startswith("-") else shown)


def markdown(text: str) -> str:
    """The text as one line of Markdown or one cell, as it reads: no HTML, link, image, emphasis, heading or cell.

    What is between two backticks stays code.
    """
    return _with_code(text, _escaped)


def unlinked(text: str) -> str:
    """As `markdown`, for a request on a forge: it calls nobody, closes no issue, and is no command of a bot."""
    shown = _with_code(text, lambda part: _CALL.sub(lambda match: f"{match[0]}{_GAP}", _escaped(part)))
    return f"\\{shown}" if shown.startswith("/") else shown


def _with_code(text: str, escape: Callable[[str], str]) -> str:
    parts = _CODE.split(line(text).strip())
    return "".join(code(part) if number % 2 else escape(part) for number, part in enumerate(parts))


def code(text: str) -> str:
    """The text as inline code of Markdown."""
    shown = line(text)
    # Nothing can be escaped between backticks.
    plain = re.fullmatch(r"[^`<>&|\\]+", shown) and shown == shown.strip()
    return f"`{shown}`" if plain else f"<code>{_escaped(shown)}</code>"


def _escaped(text: str) -> str:
    escaped = _MEANING.sub(_backslash, html.escape(text, quote=False))
    return _ENTITY.sub(lambda match: f"&#{ord(match[0])};", escaped)


def _backslash(match: re.Match[str]) -> str:
    return f"{match[0]}\\" if match[0].isdigit() else f"\\{match[0]}"


def block(text: str, language: str = "") -> list[str]:
    """The lines of a Markdown code block with the text. No line of the text can end the block."""
    shown = printable(text).rstrip()
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
    return [f"{fence}{language}", *shown.split("\n"), fence]


def _shown(letter: str) -> str:
    if letter.isprintable() or letter in "\n\t":
        return letter
    return " " if unicodedata.category(letter) == "Zs" else UNPRINTABLE
