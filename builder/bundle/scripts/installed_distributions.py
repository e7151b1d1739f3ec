"""List every distribution of the running Python, as JSON: python -E installed_distributions.py

Prints the version of Python, then of each distribution its name and its version. The environment's interpreter runs
this file, so it uses the standard library alone. sys.path[0] is the folder of this file: no packages are there.
"""

import json
import platform
import re
import sys
from importlib.metadata import distributions

listed = []
for distribution in distributions(path=sys.path[1:]):
    name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
    listed.append((name, distribution.version))
print(json.dumps([platform.python_version(), sorted(listed)]))
