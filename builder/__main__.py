"""`python -m builder` is the command `vetted`."""

import gc
import os
import signal
from types import FrameType


def main() -> None:
    """Import the command, and run it. An interruption before and after gives no traceback."""
    # What runs in the background of a shell ignores interruptions, and goes on doing so.
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, _end)
    # What the imports make stays to the end: looking through it again and again takes a tenth of a short command.
    gc.set_threshold(100_000)
    from builder.base import streams

    streams.prepare()  # the console asks them what they are when it is imported
    from builder import cli

    try:
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        cli.main()
    finally:
        if heard:
            signal.signal(signal.SIGINT, _end)
        gc.freeze()


def _end(_signal: int, _frame: FrameType | None) -> None:
    os._exit(130)


if __name__ == "__main__":
    main()
