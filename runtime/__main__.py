"""`vetted` inside an image: train, preflight, smoke."""

from __future__ import annotations

import sys

USAGE = """usage: vetted train [--config FILE] [--resume [RUN]] [OPTION VALUE]...
       vetted preflight
       vetted smoke [PROBE]...

train      run GRPO with a `trl grpo` config; without one, a small built-in task
preflight  check this machine: is the image certified for it, and what would fail?
smoke      run the suite on this machine
"""


INTERRUPTED = 130  # the exit status that shells use for Ctrl-C


def main() -> int:
    """Run the command in `sys.argv` and return its exit status."""
    try:
        return _run()
    except KeyboardInterrupt:
        return INTERRUPTED


def _run() -> int:
    command, rest = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if command == "train":
        from runtime.train.command import main as train

        return train(rest)
    if command == "preflight":
        from runtime import preflight

        return preflight.main()
    if command == "smoke":
        from runtime import smoke

        return smoke.main(rest)
    if command in ("--help", "-h"):
        print(USAGE, end="")
        return 0
    print(f"vetted: no command {command!r} in an image\n{USAGE}", end="", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
