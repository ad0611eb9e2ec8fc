"""A whole network of agent processes on one machine, for `--engine processes`.

On the network side, only this package imports the simulator, to compare results.
"""
