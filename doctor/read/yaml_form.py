"""The form of a YAML file, line by line: blocks by their indentation, flows by their brackets, and quotes.

There is no parser of YAML here, because the doctor runs without any package. Only what every parser refuses is said:
tests compare it with one on thousands of damaged files. Another part of the damages passes.
"""

from __future__ import annotations

import re

_REST = r"(?:[^\n#]|(?<=\S)#)*?"  # of a key: a # is a comment's only after a blank
KEY = re.compile(
    rf"""(?:"[^"\n]*"|'[^'\n]*'|[^\s#&*!|>'"%@`\-?:,\[\]{{}}]{_REST}|[\-?:][^\s#]{_REST})[ \t]*:(?=[ \t]|$)"""
)
BLOCK = re.compile(r"(?:[&!]\S+[ \t]+)*[|>][-+0-9]*(?:[ \t]+#.*)?")  # the text of a value follows, as it is
LONGEST = 2000  # characters of a line; a file with a longer one is not judged, because patterns are slow on it
OPENING, CLOSING = "[{", "]}"


def fault(text: str) -> str:
    """The first thing that is wrong, as a phrase for the file's name; "" where nothing is known to be."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    if max(map(len, lines)) > LONGEST:
        return ""
    form = _Form()
    for number, line in enumerate(lines, start=1):
        form.read(line, number)
        if form.fault or form.unjudged:
            return form.fault
    return form.flow.unclosed()


class _Form:
    """Where the lines that were read leave off."""

    def __init__(self) -> None:
        self.fault, self.unjudged = "", False  # unjudged: what follows is beyond this reader
        self.columns: list[int] = []  # of the blocks that are open
        self.literal = -1  # the column of a key whose text follows line by line
        self.closed = -1  # the column of a key that has its value already
        self.flow = _Flow()

    def read(self, line: str, number: int) -> None:
        """Read the next line."""
        content = line.lstrip(" ")
        column = len(line) - len(content)
        if self.flow.open:
            self._flow(content, number)
        elif not content.strip() or content.startswith("#") or (0 <= self.literal < column):
            return
        else:
            self.literal = -1
            self._block(content, column, number)

    def _block(self, content: str, column: int, number: int) -> None:
        if column == 0 and content.startswith(("---", "...", "%")):
            self.unjudged = bool(content[3:].strip()) or content.startswith("%")
            self.columns, self.closed = [], -1
            return
        if content.startswith("\t"):
            inner = content.lstrip("\t ")
            if KEY.match(inner) or inner.startswith("- "):
                self.fault = f"is no YAML: line {number} is indented with a tab"
            self.unjudged = True
            return
        item = column
        while content.startswith("- ") or content == "-":
            _open(self.columns, item)
            rest = content[1:].lstrip(" ")
            item += len(content) - len(rest)
            content, self.closed = rest, -1
        if content[:1] in ("&", "*", "!") or re.match(r"[?:](?: |$)", content):
            self.unjudged = True  # anchors, tags and long keys
        elif key := KEY.match(content):
            self._key(item, content[key.end() :].strip(), number)
        else:
            self._other(content, column, item, number)

    def _key(self, column: int, value: str, number: int) -> None:
        if column > self.closed >= 0:
            self.fault = f"is no YAML: line {number} is indented below a key that has a value"
        elif self.columns and column < self.columns[-1] and column not in self.columns:
            self.fault = f"is no YAML: line {number} is indented like no key above it"
        _open(self.columns, column)
        self.literal = column if BLOCK.fullmatch(value) else -1
        self.closed = column if value and not value.startswith(("#", "&", "*", "!", "|", ">")) else -1
        self._value(value, number)

    def _other(self, content: str, column: int, item: int, number: int) -> None:
        """A line without a key: a value of a list, or more of what the line before began."""
        if item > column:
            self.literal = column if BLOCK.fullmatch(content) else -1
            self._value(content, number)
        elif BLOCK.fullmatch(content.rstrip()):
            self.literal = column - 1
        elif column == 0 and self.columns == [0] and content[0] not in "\"'[{]}|>":
            self.fault = f"is no YAML: line {number} is neither `key: value` nor a `- value` of a list"

    def _value(self, value: str, number: int) -> None:
        if value.startswith(("[", "{", '"', "'")):
            self._flow(value, number)

    def _flow(self, text: str, number: int) -> None:
        if letter := self.flow.read(text, number):
            self.fault = f"is no YAML: line {number} closes a bracket ({letter}) that is not open"


def _open(columns: list[int], column: int) -> None:
    while columns and columns[-1] > column:
        columns.pop()
    if not columns or columns[-1] < column:
        columns.append(column)


class _Flow:
    """Brackets and quotes that were opened in a value, over several lines."""

    def __init__(self) -> None:
        self.brackets, self.quote, self.since = "", "", 0

    @property
    def open(self) -> bool:
        return bool(self.brackets or self.quote)

    def unclosed(self) -> str:
        """What is wrong when the file ends here."""
        if not self.open:
            return ""
        what = f"a quote ({self.quote})" if self.quote else f"a bracket ({self.brackets[-1]})"
        return f"is cut off, or line {self.since} opens {what} that nothing closes"

    def read(self, text: str, number: int) -> str:
        """Read on, to the end of the value; the bracket that closes what is not open, or ""."""
        self.since = self.since if self.open else number
        place = 0
        while place < len(text):
            letter = text[place]
            if self.quote:
                place += self._quoted(text, place)
            elif letter in "\"'" and _begins(text, place):
                self.quote = letter
            elif letter == "#" and text[place - 1 : place] in ("", " ", "\t"):
                return ""
            elif letter in OPENING:
                self.brackets += letter
            elif letter in CLOSING:
                if OPENING.index(self.brackets[-1]) != CLOSING.index(letter):
                    return letter
                self.brackets = self.brackets[:-1]
            if not self.open:
                return ""
            place += 1
        return ""

    def _quoted(self, text: str, place: int) -> int:
        """Read a letter in quotes; how many more belong to it."""
        if self.quote == '"' and text[place] == "\\":
            return 1
        if text[place] != self.quote:
            return 0
        if self.quote == "'" and text[place + 1 : place + 2] == "'":
            return 1
        self.quote = ""
        return 0


def _begins(text: str, place: int) -> bool:
    """Does a quote begin there, and is no letter of a word?"""
    before = text[place - 1] if place else " "
    return before in " \t[{," or (before == ":" and text[place - 2 : place - 1] in ('"', "'"))
