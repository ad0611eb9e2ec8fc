"""The simulator: algorithms run with all agents at once in JAX, or with each alone in NumPy."""
