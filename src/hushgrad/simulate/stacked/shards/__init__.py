"""The stacked engine over several devices: agents in shards, whose sums cross.

`ShardedSimulation` (simulation.py) takes the place of `Simulation` where a run has a mesh.
"""
