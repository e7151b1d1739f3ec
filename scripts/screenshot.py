#!/usr/bin/env python3
"""A picture of a command: what it prints on stdout, as SVG. Nothing in the picture is fetched from elsewhere.

.venv/bin/python scripts/screenshot.py docs/certify.svg certify trl1.16-cpu --force
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.terminal_theme import MONOKAI

from builder import cli, console

WIDTH = 116  # characters; a line with a digest has 110


def picture(argv: list[str]) -> tuple[int, str]:
    """Run a command; its exit code, and the SVG."""
    console.out.record, console.out.width = True, WIDTH
    console.out.print(f"$ vetted {' '.join(argv)}", style="bold")
    sys.argv = ["vetted", *argv]
    try:
        cli.main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    svg = console.out.export_svg(title=f"vetted {argv[0]}", theme=MONOKAI, unique_id="vetted")
    # Fonts from a content delivery network: every viewer has a monospaced one.
    svg = re.sub(r"\s*(@font-face \{.*?\}|<!--.*?-->)", "", svg, flags=re.DOTALL)
    return code, "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: screenshot.py FILE.svg COMMAND...")
    target = Path(sys.argv[1])
    status, drawing = picture(sys.argv[2:])
    if status == 0:
        target.write_text(drawing, encoding="utf-8")
    sys.exit(status)
