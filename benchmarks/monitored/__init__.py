"""Tiny GRPO runs with the monitor, healthy ones and ones with a fault: `python -m benchmarks.monitored < jobs`

It runs in a stack's Python. A job is one line of JSON; its result is one, too. Each job is a fork, so that a fault
stays in it.
"""
