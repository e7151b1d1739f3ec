"""Vetted's doctor: what is wrong with an environment for GRPO training, how that is known, and the way out.

It reads what is installed and imports none of it: the environment may be broken. It needs Python 3.9, `packaging` (or
the copy that pip carries) and nothing else, and imports nothing from builder.
"""
