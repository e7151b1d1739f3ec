"""GPUs that are not there: a driver that answers "no device" to every call, and writes down who called."""
