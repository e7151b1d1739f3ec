"""A stack for hosts without a network."""
