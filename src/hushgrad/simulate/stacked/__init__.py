"""All agents at once in JAX: layout, compiled program, native loops.

`hg.run` with `engine="stacked"` uses it.
"""
