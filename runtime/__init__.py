"""What an image carries beside its stack: preflight, training, and a driver of the suite.

It imports the standard library and the stack, nothing of the tool.
"""
