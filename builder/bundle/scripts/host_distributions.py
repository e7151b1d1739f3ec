"""List distributions that the running Python has, as JSON: python -E host_distributions.py NAME...

Each is its name, its version, the folder that its files are relative to, and these files. The host's own interpreter
runs this file, so it uses the standard library alone. sys.path[0] is the folder of this file: no packages are there.
"""

import json
import re
import sys
from importlib.metadata import distributions

listed: dict[str, tuple[str, str, str, list[str] | None]] = {}
for distribution in distributions(path=sys.path[1:]):
    name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
    if name not in sys.argv[1:] or name in listed:
        continue
    # Without RECORD, nobody knows the files of a distribution.
    files = distribution.files if distribution.read_text("RECORD") else None
    paths = None if files is None else [str(file) for file in files]
    listed[name] = (name, distribution.version, str(distribution.locate_file("")), paths)
print(json.dumps(sorted(listed.values())))
