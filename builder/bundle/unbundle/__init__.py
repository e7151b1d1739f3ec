"""What travels with a bundle: the entry script of a host without a network, of the standard library only.

`vetted bundle` packs this folder into run.pyz, so its modules name each other relatively. It runs on any Python from
3.10: the stack's own Python is not there yet.
"""
