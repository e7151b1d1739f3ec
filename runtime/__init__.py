"""The commands of an image: train, preflight, smoke.

Imports only the standard library and the stack's packages, nothing of the tool.
"""
