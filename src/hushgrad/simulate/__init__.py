"""Running algorithms: all agents at once in JAX, or each alone in NumPy."""
