"""Golden trajectories: the same training on many seeds, with its numbers at every step."""
