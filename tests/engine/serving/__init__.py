"""What runs in the stack beside vLLM's server: a plugin that carries weights without a GPU, and a trainer."""
