"""What can be seen in an environment without any advisory: one module, one question."""
