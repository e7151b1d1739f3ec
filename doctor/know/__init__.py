"""What is known of packages: advisories, stacks, the names of their releases, what later releases fixed."""
