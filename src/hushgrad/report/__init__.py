"""Runs for people and papers: curves, pictures, tables and exports.

Nothing here imports the simulator: `simulate.result` imports this package, so that `run.plot()` is
a plain call.
"""
