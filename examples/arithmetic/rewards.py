"""The reward can be verified: the first number of a completion is the answer, or it is not."""

from __future__ import annotations

import re
from typing import Any


def correct(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    """1 for the right answer, 0 for another one."""
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    numbers = [re.search(r"\d+", text) for text in texts]
    return [float(bool(number) and number[0] == right) for number, right in zip(numbers, answer, strict=True)]
