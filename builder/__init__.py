"""The pipeline: stack.toml -> lock -> Dockerfile -> image -> certificate.

A folder is a stage. Imports point downwards only; `lint-imports` proves it.
"""

__version__ = "0.1.0"
