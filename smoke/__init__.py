"""The suite: probes that ask a stack questions by running real training code inside it.

`python -m smoke` reads a request from standard input and writes one JSON event per line. Everything here needs only
Python 3.10 or newer and the packages of the stack.
"""
