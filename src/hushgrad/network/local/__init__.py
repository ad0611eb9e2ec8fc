"""A whole network of agent processes on one machine, for `--engine processes`.

Of all modules of the network side only these import the simulator, to compare with.
"""
