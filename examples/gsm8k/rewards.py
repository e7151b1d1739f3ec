"""Rewards for GSM8K that can be verified."""

from __future__ import annotations

import re
from typing import Any


def correct(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    """1 where the number after #### is the answer, else 0."""
    texts = [completion[-1]["content"] for completion in completions]
    numbers = [re.search(r"####\s*\$?(-?[\d,.]*\d)", text) for text in texts]
    return [
        float(bool(number) and number[1].replace(",", "") == right)
        for number, right in zip(numbers, answer, strict=True)
    ]
