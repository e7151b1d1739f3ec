"""What there is: an environment's packages and files, the machine, how a run is configured, an error or a log."""
