"""The suite: probes that ask a stack questions by running real training code inside it.

`python -m smoke` reads a request from standard input and writes one JSON event per line. Everything
here runs with the standard library and the stack's own packages, on any Python from 3.10 on.
"""
