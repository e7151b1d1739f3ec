"""Only certified images may run: one policy for `vetted verify`, cosign, and the admission of a cluster."""
