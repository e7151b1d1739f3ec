"""The check of a config before a run: in a second, from files alone, before anything heavy is imported."""
