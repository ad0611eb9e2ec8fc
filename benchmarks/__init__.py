"""How fast the simulator is: against a C kernel by hand, against its peers, and as sizes grow.

`python -m benchmarks` runs everything; docs/performance.md says what is measured.
"""
