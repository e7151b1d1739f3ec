"""Prints the folders of the Python that runs it, as JSON. `interpreters.ask` runs its text with `python -I -S -c`."""

import json
import site
import sys
import sysconfig

paths = sysconfig.get_paths()
folders = [paths["purelib"], paths["platlib"]]
try:
    folders += site.getsitepackages()
    if site.ENABLE_USER_SITE is not False:
        folders.append(site.getusersitepackages())
except Exception:  # noqa: S110 (an interpreter without a home, or a site of its own)
    pass
version = "{}.{}.{}".format(*sys.version_info[:3])
print(json.dumps({"folders": folders, "python": version, "include": paths["include"]}))
