"""All agents at once in JAX: layout, compiled program, native loops."""
