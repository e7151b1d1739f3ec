"""`python -m builder` is the command `vetted`."""

import atexit
import gc

# Imports make hundreds of thousands of objects that stay. Looking through them at every 700th takes a sixth of the start.
gc.set_threshold(100_000)
atexit.register(gc.freeze)

from builder.cli import main  # noqa: E402

main()
