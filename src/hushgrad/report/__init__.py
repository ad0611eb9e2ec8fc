"""Runs for people and papers: plots and exports.

`Run.plot`, the command line and the paper's experiments use it.
"""
