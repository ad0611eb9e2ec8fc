"""How fast agents on real links are: against a bare loop on loopback, and on a slow link.

`python -m benchmarks.network` runs it; docs/performance.md says how it measures.
"""
