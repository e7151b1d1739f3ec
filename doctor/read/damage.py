"""What is wrong with the form of a configuration: JSON that is cut off, YAML that no program parses."""

from __future__ import annotations

import json
import re

from doctor.read import yaml_form

MERGE = re.compile(r"^(?:<{7}|>{7})(?: |$)", re.MULTILINE)


def of(name: str, text: str) -> str:
    """What is wrong with a configuration, as a phrase for its name; "" where nothing is known to be."""
    mark = MERGE.search(text)
    if mark:
        return f"has the marks of an unfinished merge, the first in line {_line(text, mark.start())}"
    low = name.lower()
    if low.endswith((".yaml", ".yml")):
        return yaml_form.fault(text)
    is_json = low.endswith(".json") or (not low.endswith(".py") and re.match(r'\s*\{\s*["}]', text) is not None)
    return _of_json(text) if is_json and text.strip() else ""


def _of_json(text: str) -> str:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        end = len(text.rstrip())
        # A string that does not end has its error where it begins.
        if error.pos >= end or error.msg.startswith("Unterminated string"):
            return f"is cut off in line {_line(text, end)}"
        return f"is no JSON: line {error.lineno}, column {error.colno}: {error.msg}"
    except (ValueError, RecursionError):
        return "is no JSON that any program reads: it is nested too deeply, or a number is too long"
    return ""


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
