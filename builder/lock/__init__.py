"""From intent to a lock: every Python and Debian package, with its hash."""
