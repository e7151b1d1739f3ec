"""A published image: pushed with what proves it, and judged."""
