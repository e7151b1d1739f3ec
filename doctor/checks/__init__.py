"""The sources of findings. A check is a function: a case in, findings out; `registry.CHECKS` lists all of them."""
