"""Does imports notice what was installed beside the lock?"""

from __future__ import annotations

from tests.sabotage._break import sabotage

CAUGHT_BY = ("distributions_extra", "distributions_different")


def break_it() -> None:
    import os
    from pathlib import Path

    for name in ("trl", "intruder"):
        folder = Path("beside", f"{name}-0.14.0.dist-info")
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: 0.14.0\n")
    os.environ["PYTHONPATH"] += f":{Path('beside').resolve()}"


PROBE, run = sabotage("imports", break_it)
