"""Shared code of the probes: tiny models, an adapter for TRL's releases, references to compare with."""
