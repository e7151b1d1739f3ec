"""The suite tested as code is tested: one small wrong change in one installed library, and the suite must turn red.

`python -m tests.mutants` reads a list of such changes (tests/mutants.toml), makes each in a throw-away environment
and runs the suite there. A mutant is killed by the first probe that does not pass; one that no probe notices has
survived, and shows what the suite cannot see.
"""
