"""Many stacks on many machines: one stack in, one statement out, by the scheduler that a cluster already has."""
