"""What people write: stack.toml and the advisories."""
