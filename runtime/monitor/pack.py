"""Pack the monitor into one file for any environment with TRL: `python -m runtime.monitor.pack vetted_monitor.zip`

Python imports from the file where it is in PYTHONPATH or sys.path: `import vetted_monitor`. The same monitor gives the
same bytes.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

PACKAGE = "vetted_monitor"
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip file


def pack(target: Path) -> list[str]:
    """Write the file; returns the names in it."""
    names = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(Path(__file__).parent.glob("*.py")):
            name = zipfile.ZipInfo(f"{PACKAGE}/{file.name}", LONG_AGO)
            name.external_attr = 0o644 << 16
            archive.writestr(name, file.read_bytes(), zipfile.ZIP_DEFLATED)
            names.append(name.filename)
    return names


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(f"usage: python -m runtime.monitor.pack {PACKAGE}.zip")
    pack(Path(sys.argv[1]))
    print(
        f"{sys.argv[1]}: PYTHONPATH={sys.argv[1]} python train.py, with `vetted_monitor.watch(trainer)` before train()"
    )
