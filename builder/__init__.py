"""The pipeline: stack.toml -> lock -> Dockerfile -> image -> certificate. One module per stage, imports downwards only."""

__version__ = "0.1.0"
