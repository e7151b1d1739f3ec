"""Letters that command a terminal, and whether a text holds any."""

from __future__ import annotations

CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"
HOSTILE = f"[/x] [red]{CLIPBOARD}\x9b31m\u202egnp.exe\u200b\ud800 [[override]] :skull:"


def harmless(content: str) -> bool:
    return all(letter.isprintable() or letter in "\n\t" for letter in content)
