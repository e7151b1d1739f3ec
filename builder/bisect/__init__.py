"""From a good and a bad state to the smallest difference that matters."""
