"""From a lock to an image: the Dockerfile, the build, and the OCI layout."""
