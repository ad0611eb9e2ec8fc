"""The stacked engine over several devices: agents in shards, neighbours of other shards as ghosts.

`ShardedSimulation` (simulation.py) takes the place of `Simulation` where a run has a mesh.
"""
