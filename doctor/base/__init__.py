"""Ground that every stage stands on: versions and ranges, text for a terminal."""
