"""All agents at once in JAX: layout and compiled program.

`hg.run` with `engine="stacked"` uses it.
"""
