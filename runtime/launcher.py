#!/usr/bin/env -S python -IB
"""The command `vetted` inside an image, installed as /usr/local/bin/vetted.

It runs in Python's isolated mode: no imports from the current folder or from PYTHONPATH.
"""

import os
import sys

HOME = "/opt/vetted"

if os.environ.get("PYTHONPATH"):
    print(
        f"vetted: PYTHONPATH={os.environ['PYTHONPATH']} is not used: it would come before the stack\n"
        "next: put your own modules next to the config",
        file=sys.stderr,
    )
for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE"):
    os.environ.pop(name, None)
os.environ["PYTHONPATH"] = HOME  # for the processes that it starts
sys.path.insert(0, HOME)

from runtime.__main__ import main  # noqa: E402

sys.exit(main())
