"""`python -m builder` is the command `vetted`."""

from builder.cli import main

main()
