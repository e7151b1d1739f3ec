"""The pipeline: stack.toml -> lock -> Dockerfile -> image -> certificate.

One module per stage; imports point downwards only.
"""

__version__ = "0.1.0"
