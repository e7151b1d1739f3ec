"""Reads the pages of a site: their links, what they load, and every number with the place that it claims to be from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

VOID = {"meta", "link", "br", "input", "img", "path", "circle", "polyline", "rect", "line"}


@dataclass(frozen=True)
class Number:
    """A `<data>` element: its exact value, the places that it is from, and what a reader sees."""

    value: Any
    places: tuple[str, ...]
    text: str


@dataclass
class Read:
    """A page. `stray`: text with digits in a cell of numbers that names no place."""

    numbers: list[Number] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    text: str = ""
    stray: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Read()
        self.open: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.page.ids |= {attributes["id"]} if "id" in attributes else set()
        if tag == "a":
            self.page.links.append(attributes["href"])
        if address := attributes.get({"link": "href", "script": "src", "img": "src"}.get(tag, ""), ""):
            self.page.loads.append(address)
        if tag not in VOID:
            self.open.append((tag, attributes))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass  # a shape

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        name, _ = self.open.pop()
        assert name == tag, f"</{tag}> closes <{name}>"

    def handle_data(self, text: str) -> None:
        self.page.text += text
        tags = [name for name, _ in self.open]
        if "data" in tags:
            attributes = self.open[tags.index("data")][1]
            of = next((each["data-of"] for _, each in reversed(self.open) if "data-of" in each), "")
            places = tuple(at if "#" in at else f"{of}/{at}" for at in attributes["data-at"].split())
            self.page.numbers.append(Number(json.loads(attributes["value"]), places, text))
        elif any("number" in each.get("class", "").split() for _, each in self.open) and any(map(str.isdigit, text)):
            self.page.stray.append(text)


def read(html: str) -> Read:
    """Raises AssertionError where elements are not nested."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader.page


def value_at(root: Path, place: str) -> Any:
    """What stands at a place: a file of the site and a JSON pointer, which may end in the length of a list."""
    file, _, pointer = place.partition("#")
    node = json.loads((root / unquote(file)).read_bytes())
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if key == "length" and (isinstance(node, list) or key not in node):
            node = len(node)
        else:
            node = node[int(key)] if isinstance(node, list) else node[key]
    return node


def wrong(root: Path, number: Number) -> str:
    """What is wrong with a number; empty where it is what stands at its place."""
    values = [value_at(root, place) for place in number.places]
    expected = sum(values) if len(values) > 1 else values[0]
    return "" if expected == number.value else f"{number} should be {expected!r}"
