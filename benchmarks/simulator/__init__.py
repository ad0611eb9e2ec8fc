"""How fast the simulator is: against a C kernel by hand, against its peers, and as sizes grow.

`python -m benchmarks` runs it; docs/performance.md says how it measures. designs.py compares the
privacy designs, which the simulator runs.
"""
