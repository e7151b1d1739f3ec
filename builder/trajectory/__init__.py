"""Golden trajectories: what a stack trains, number by number and step by step, and whether another trains the same."""
