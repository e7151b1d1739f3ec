"""From two states to the smallest difference that matters: packages, and settings."""
