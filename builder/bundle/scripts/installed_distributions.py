"""List every distribution of the running Python, as JSON: python -E installed_distributions.py

Prints the version of Python, then of each distribution its name, its version and whether its METADATA is a link: its
files are then the host's. The environment's interpreter runs this file, so it uses the standard library alone.
sys.path[0] is the folder of this file: no packages are there.
"""

import json
import platform
import re
import sys
from importlib.metadata import distributions
from pathlib import Path

listed = []
for distribution in distributions(path=sys.path[1:]):
    name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
    folder = Path(distribution._path)  # type: ignore[attr-defined]  # its .dist-info, which has no public name
    listed.append((name, distribution.version, (folder / "METADATA").is_symlink()))
print(json.dumps([platform.python_version(), sorted(listed)]))
