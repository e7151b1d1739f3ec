"""`python -m builder` is the command `vetted`."""

import atexit
import gc

# What the imports make stays to the end: looking through it again and again takes a tenth of a short command.
gc.set_threshold(100_000)
atexit.register(gc.freeze)

from builder.cli import main  # noqa: E402

main()
