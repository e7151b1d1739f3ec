"""The runner: a supervisor, a zygote that imports the stack once, and one forked process per probe."""
