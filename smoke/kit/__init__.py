"""What probes share: tiny models, TRL across its releases, references to compare with."""
