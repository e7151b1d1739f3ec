"""The form of a YAML file, line by line: blocks by their indentation, flows by their brackets, and quotes.

There is no parser of YAML here, because the doctor runs without any package. Only what every parser refuses is said:
tests compare it with one on thousands of damaged files. Another part of the damages passes.
"""

from __future__ import annotations

import re

_BLANK = r"[ \t]"  # and no other: YAML takes the blanks of Unicode for letters
_QUOTED = r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*'"""
_START = r"""[^ \t\r\n#&*!|>'"%@`\-?:,\[\]{}]|[\-?:](?=[^ \t\r\n])"""
_REST = r"(?:[^\n#]|(?<=[^ \t])#)*?"  # of a key: a # is a comment's only after a blank
KEY = re.compile(rf"(?:{_QUOTED}|(?:{_START}){_REST}){_BLANK}*:(?={_BLANK}|$)")
BLOCK = re.compile(r"[|>][-+0-9]*[ \t]*(?:#.*)?")  # the text of a value follows, as it is
PROPERTIES = re.compile(r"\A(?:[&!][^ \t]*(?:[ \t]+|$))*")  # an anchor, a tag: the value follows
PROPERTY = re.compile(r"!<[^>\n]*>|[&!][^ \t,\[\]{}]*")  # within brackets
LONG_KEY = re.compile(r"[?:](?:[ \t]|$)|-\t")  # and an item that a tab follows, which not every parser takes
BREAK = re.compile("[\r\x85\u2028\u2029]")  # ends a line for some parsers, and not for all
LONGEST = 2000  # characters of a line; a file with a longer one is not judged, because patterns are slow on it
OPENING, CLOSING = "[{", "]}"


def fault(text: str) -> str:
    """The first thing that is wrong, as a phrase for the file's name; "" where nothing is known to be."""
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").split("\n")
    if max(map(len, lines)) > LONGEST or any(map(BREAK.search, lines)):
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
        self.literal: int | None = None  # the column of a block whose text follows line by line
        self.plain: int | None = None  # the column of a block whose value has no quotes: deeper lines may be more of it
        self.closed = -1  # the column of a key that has its value already
        self.flow = _Flow()

    def read(self, line: str, number: int) -> None:
        """Read the next line."""
        content = line.lstrip(" ")
        column = len(line) - len(content)
        if self.flow.open:
            self._flow(content, number)
        elif not content.strip(" \t") or content.startswith("#"):
            return
        elif self.literal is None or column <= self.literal:
            self.literal = None
            self._block(content, column, number)

    def _block(self, content: str, column: int, number: int) -> None:
        if column == 0 and content.startswith(("---", "...", "%")):
            self.unjudged = bool(content[3:].strip()) or content.startswith("%")
            self.columns, self.closed, self.plain = [], -1, None
            return
        more = self.plain is not None and column > self.plain  # of that value, unless it is a key
        if content.startswith("\t"):
            inner = content.lstrip("\t ")
            if KEY.match(inner) or (inner.startswith("- ") and not more):
                self.fault = f"is no YAML: line {number} is indented with a tab"
            self.unjudged = True
            return
        if more and not KEY.match(content):
            return
        self.plain = None
        item = column
        while content.startswith("- ") or content == "-":
            _open(self.columns, item)
            rest = content[1:].lstrip(" ")
            item += len(content) - len(rest)
            content, self.closed = rest, -1
        if content[:1] in ("&", "*", "!") or LONG_KEY.match(content):
            self.unjudged = True  # anchors, tags and long keys
        elif key := KEY.match(content):
            self._key(item, content[key.end() :].strip(" \t"), number)
        else:
            self._other(content.strip(" \t"), column, item, number)

    def _key(self, column: int, value: str, number: int) -> None:
        if column > self.closed >= 0:
            self.fault = f"is no YAML: line {number} is indented below a key that has a value"
        elif self.columns and column < self.columns[-1] and column not in self.columns:
            self.fault = f"is no YAML: line {number} is indented like no key above it"
        _open(self.columns, column)
        self.closed = column if value and not value.startswith(("#", "&", "*", "!", "|", ">")) else -1
        self._value(value, column, number)

    def _other(self, content: str, column: int, item: int, number: int) -> None:
        """A line without a key: a value of a list, or one that begins in the line below its key."""
        if column == item == 0 and self.columns == [0] and content[0] not in "\"'[{]}|>":
            self.fault = f"is no YAML: line {number} is neither `key: value` nor a `- value` of a list"
        self._value(content, max((each for each in self.columns if each <= item), default=-1), number)

    def _value(self, value: str, block: int, number: int) -> None:
        """A value that begins here, in the block of that column."""
        value = PROPERTIES.sub("", value)
        if value.startswith(("[", "{", '"', "'")):
            self._flow(value, number)
        elif BLOCK.fullmatch(value):
            self.literal, self.unjudged = block, block < 0
        elif value and not value.startswith("#"):
            self.plain = block

    def _flow(self, text: str, number: int) -> None:
        if letter := self.flow.read(text, number):
            self.fault = f"is no YAML: line {number} closes a bracket ({letter}) that is not open"
        self.unjudged = self.flow.unjudged


def _open(columns: list[int], column: int) -> None:
    while columns and columns[-1] > column:
        columns.pop()
    if not columns or columns[-1] < column:
        columns.append(column)


class _Flow:
    """Brackets and quotes that were opened in a value, over several lines."""

    def __init__(self) -> None:
        self.brackets, self.quote, self.since = "", "", 0
        self.unjudged = False
        self.before = ""  # what the next letter follows: nothing of a value yet, a "word", or the "end" of a value

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
        if not self.open:
            self.since, self.before = number, ""
        place = 0
        while place < len(text) and not self.unjudged:
            letter = text[place]
            if self.quote:
                place += self._quoted(text, place)
            elif letter == "#" and text[place - 1 : place] in ("", " ", "\t"):
                return ""
            elif letter in OPENING:
                self.brackets, self.before = self.brackets + letter, ""
            elif letter in CLOSING:
                if OPENING.index(self.brackets[-1]) != CLOSING.index(letter):
                    return letter
                self.brackets, self.before = self.brackets[:-1], "end"
            else:
                place += self._letter(text, place)
            place += 1
            if not self.open:  # a colon may follow, of a key in quotes or brackets
                rest = text[place:].strip(" \t")
                self.unjudged = bool(rest) and not rest.startswith("#")
                return ""
        return ""

    def _letter(self, text: str, place: int) -> int:
        """Read a letter in brackets and outside of quotes; how many more belong to it."""
        letter, apart = text[place], text[place + 1 : place + 2] in ("", " ", "\t", ",", "[", "]", "{", "}")
        if letter in "\"'" and not self.before:  # within a word it is a letter
            self.quote = letter
        elif letter in "&!" and not self.before:
            end = found.end() if (found := PROPERTY.match(text, place)) else place
            self.unjudged = text[end : end + 1] not in ("", " ", "\t")  # some parsers take more for a tag than others
            return end - place - 1
        elif letter == "," or (letter == ":" and (apart or self.before == "end")):
            self.before = ""
        elif letter in "?:" and not self.before:
            self.unjudged = not apart  # the beginning of a word, but not for every parser
        elif letter not in " \t":
            self.before = "word"
        return 0

    def _quoted(self, text: str, place: int) -> int:
        """Read a letter in quotes; how many more belong to it."""
        if self.quote == '"' and text[place] == "\\":
            return 1
        if text[place] != self.quote:
            return 0
        if self.quote == "'" and text[place + 1 : place + 2] == "'":
            return 1
        self.quote, self.before = "", "end"
        return 0
