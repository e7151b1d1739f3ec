"""From a certified stack to a newer one."""
