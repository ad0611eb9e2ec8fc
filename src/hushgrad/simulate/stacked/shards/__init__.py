"""The stacked engine over several devices: the agents are divided into shards.

`ShardedSimulation` (simulation.py) takes the place of `Simulation` where a run has a mesh.
"""
