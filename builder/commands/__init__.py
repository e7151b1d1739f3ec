"""The commands of `vetted`, one module for each part of the work."""
