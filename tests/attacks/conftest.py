"""Attacks see the same machine as unit tests do."""

from tests.unit.conftest import command, dead_index, isolated, uv_cache, wheels

__all__ = ["command", "dead_index", "isolated", "uv_cache", "wheels"]
