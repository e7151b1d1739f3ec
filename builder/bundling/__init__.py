"""For hosts without a network: what they are given, and what runs there."""
