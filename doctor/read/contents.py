"""What a text is: a log, a list of packages, a configuration or a script. By its lines, not by its name."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from doctor.read import parsing, requirements, symptoms

LINES = 2000  # lines that are looked at
LONGEST = 400  # characters of a line
SCRIPT = 256 * 1024  # characters of a script that is parsed
MOSTLY = 0.8  # the part of its lines that makes a text what they are

# What only a program that runs prints.
SURE = re.compile(
    r"Traceback \(most recent call last\)|^\s*File \".+\", line \d+|(?:^|[\s:.\]])[A-Z]\w*(?:Error|Exception): "
    r"|core dumped|Segmentation fault|^Killed$|\d%\|[^|]{0,200}\|\s*\d|\bCUDA out of memory"
    r"|^\s*\{'\w+': |^\s*(?:fatal )?error: "
)
LOGGED = re.compile(
    r"\s*(?:\[?\d{4}-\d\d-\d\d[ T_]\d\d:\d\d|\[?\d\d:\d\d:\d\d|[IWEF]\d{4} \d\d:|\(\w+ pid=\d+\)|\[rank\d+\]"
    r"|\[?(?:INFO|WARN|WARNING|ERROR|DEBUG|CRITICAL|FATAL)\b|\S+:\d+: \w*Warning"
    r"|(?:\w+\.)*[A-Z]\w*(?:Warning|Error|Exception)\b"
    r"|(?:Collecting|Downloading|Building) \S)"
)
SETTING = re.compile(
    r"""(?:- )?["']?(?:[a-z_]|[A-Z0-9]+_)[\w./-]{0,80}["']?\s*(?::(?:\s|$)|=\s)|- \S|[\[\]{}(),\s]+$|["']\S+["'],?$"""
)
SECTION = re.compile(r"\[{1,2}[\w.\"'-]{1,80}\]{1,2}$")  # of TOML
TEXT = re.compile(r"\w: +[|>][-+0-9]*\s*$")
HEADER = re.compile(r"Package +Version|[- ]{3,}$|-r |--|# ")
DOCUMENT = re.compile(r"^\s*```|\]\(\S|^\s*\|[ :-]+\|")  # Markdown
# A few that a list of names alone is known by.
KNOWN = {"trl", "transformers", "torch", "vllm", "accelerate", "datasets", "peft", "deepspeed", "bitsandbytes", "numpy"}
COMMAND = re.compile(
    r"^\s*(?:exec )?(?:accelerate launch|torchrun|deepspeed +(?:--|\S+\.py)|trl [a-z-]+|python[0-9.]* \S+\.py)\b",
    re.MULTILINE,
)
OPTIONS = "--log FILE, --requirements FILE, --config FILE or --python PATH says what it is"


class Kind(NamedTuple):
    """The option that a text belongs to; "" where that is not clear, and then what it looks like."""

    option: str
    looks: str = ""


def kind(text: str, end: str = "", *, whole: bool = True) -> Kind:
    """What a text is. `end`: the last lines of a long one. `whole`: `text` is all of it."""
    if not text.strip("\ufeff\0 \t\r\n"):
        return Kind("", f"is empty; {OPTIONS}")
    form = _of_form(text) if whole else None
    if form is not None:
        return form
    lines = [line[:LONGEST] for line in text.splitlines()[:LINES]] + end.splitlines()[-200:]
    lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if any(SURE.search(line) for line in lines):
        return Kind("log")
    return _by_lines(lines)


def _of_form(text: str) -> Kind | None:
    """What is known by the form of the whole text: JSON, a script, a lock, a file of another tool."""
    first = text.lstrip("\ufeff \t\r\n")
    if first[:1] in ("{", "["):
        parsed = _json(text)
        if _is_list(parsed):
            return Kind("", "is a list of packages as JSON: give the output of `pip list` or `conda list` without JSON")
        if parsed is not None:
            return Kind("config")
        rows = [line for line in text.splitlines() if line.strip()]
        if len(rows) > 1 and isinstance(_json(rows[0]), dict) and isinstance(_json(rows[1]), dict):
            return Kind("log")  # a step in every line
        if re.match(r'\{\s*["}]', first):
            return None if SURE.search(text[:LONGEST]) else Kind("config")  # which is damaged
    if re.search(r"^\[\[packages?\]\][ \t]*$", text, re.MULTILINE):
        return Kind("requirements")
    if re.search(r"^\[(?:project|build-system|tool\.[\w.-]+)\][ \t]*$", text, re.MULTILINE):
        return Kind("", "is a project's pyproject.toml, which says no versions: give the output of `pip freeze`")
    if re.search(r"^dependencies:[ \t]*$", text, re.MULTILINE) and re.search(
        r"^(?:channels|name):", text, re.MULTILINE
    ):
        return Kind("", "is an environment file of conda, which says few versions: give the output of `conda list`")
    return Kind("config") if _is_script(text) else None


def _is_script(text: str) -> bool:
    """Is it a Python script, or a shell's that starts a training?"""
    if text.startswith("#!") and "python" not in text.splitlines()[0]:
        return True
    if len(text) <= SCRIPT and re.search(r"^(?:import|from) \w", text, re.MULTILINE):
        tree = parsing.tree_of(text.encode("utf-8", "replace"))
        if tree is not None:
            return any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in tree.body)
    command = COMMAND.search(text)
    return command is not None and len(text) < 20_000 and not any(map(SURE.search, text.splitlines()))


def _by_lines(lines: list[str]) -> Kind:
    """What most of the lines are."""
    lines = list(_without_texts(lines))
    count = max(len(lines), 1)
    listed, names = _listed(lines)
    logged = sum(LOGGED.match(line) is not None for line in lines)
    settings = sum(
        LOGGED.match(line) is None and (SETTING.match(line.strip()) or SECTION.match(line.strip())) is not None
        for line in lines
    )
    if listed >= MOSTLY * count and names >= MOSTLY * listed:
        return Kind("requirements")
    if settings >= MOSTLY * count and settings > logged:
        return Kind("config")
    if logged >= 0.2 * count:
        return Kind("log")
    # Prose of several words a line, about something that went wrong, is what programs print.
    telling = any(symptoms.TELLING.search(line.encode("utf-8", "replace")) for line in lines)
    if telling and listed < 0.2 * count and settings < 0.2 * count and _words(lines) >= 4:
        document = any(DOCUMENT.search(line) for line in lines)
        return Kind("", f"looks like a document; {OPTIONS}") if document else Kind("log")
    looks = [
        words
        for part, words in ((listed, "a list of packages"), (settings, "a configuration"), (logged, "a log"))
        if part >= 0.2 * count
    ]
    like = f"looks partly like {' and partly like '.join(looks)}" if looks else (
        "looks like none of a log, a list of packages and a configuration"
    )  # fmt: skip
    return Kind("", f"{like}; {OPTIONS}")


def _without_texts(lines: list[str]) -> Iterator[str]:
    """The lines without the texts of YAML: those below `key: |`, such as a prompt."""
    above = -1  # the column of the key whose text follows
    for line in lines:
        column = len(line) - len(line.lstrip())
        if 0 <= above < column:
            continue
        above = column if TEXT.search(line) else -1
        yield line


def _listed(lines: list[str]) -> tuple[int, int]:
    """How many lines belong to a list of packages, and how many of these name a package that no other one names.

    A log that says "Step 5", "Step 6" repeats one name; a list hardly does.
    """
    count, names, told = 0, set(), False
    for line in lines:
        if HEADER.match(line.strip()):
            count += 1
            names.add(str(count))
            continue
        package, sure = requirements.listed(line)
        if package is None:
            continue
        count += 1
        names.add(package)
        told = told or sure or package in KNOWN
    return (count, len(names)) if told else (0, 0)


def _words(lines: list[str]) -> float:
    return sum(len(line.split()) for line in lines) / max(len(lines), 1)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_list(value: Any) -> bool:
    """Is it what `pip list --format json` and `conda list --json` print?"""
    return isinstance(value, list) and bool(value) and all(
        isinstance(row, dict) and {"name", "version"} <= row.keys() for row in value
    )  # fmt: skip
