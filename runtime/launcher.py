#!/usr/bin/env -S python -P
"""The command `vetted` inside an image, where it lies as /usr/local/bin/vetted."""

import os
import sys

HOME = "/opt/vetted"

# Not from the folder that it happens to run in; and the processes that it starts find it as well.
sys.path.insert(0, HOME)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (HOME, os.environ.get("PYTHONPATH"))))

from runtime.__main__ import main  # noqa: E402

sys.exit(main())
