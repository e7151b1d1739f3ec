"""Deliberate breaks: each file is a probe of smoke/probes in a stack that was made wrong in one place.

A file is called PROBE__WHAT.py. Its CAUGHT_BY names the bounds of the probe that must be broken then: a check that was
lost, or can no longer fail, lets one of them pass. `python -m smoke --probes tests/sabotage` runs them all; every one
has to fail. tests/engine/test_sabotage.py does that.
"""
