"""The runner: a supervisor, a zygote that imports the stack once, and a forked process per probe."""
