"""The benchmark of the simulator: against a hand-written C kernel, against peers, as sizes grow.

`python -m benchmarks` runs the benchmark; docs/performance.md explains the measurements.
designs.py compares the privacy designs of PDG in the simulator.
"""
