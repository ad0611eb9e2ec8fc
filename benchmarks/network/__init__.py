"""The benchmark of networked agents: on loopback against a bare loop, and on slow links.

`python -m benchmarks.network` runs the benchmark; docs/performance.md explains the measurements.
"""
