"""Probes of a user's own configuration (own.json). They run when the caller copies them among the others."""
