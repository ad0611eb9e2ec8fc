"""Benchmarks of the simulator (`python -m benchmarks`) and of agents on links
(`python -m benchmarks.network`). docs/performance.md explains the measurements.
"""
