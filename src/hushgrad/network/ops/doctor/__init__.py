"""`hushgrad doctor`: the examination of an agent, one module for each of its parts.

The dossier (ops/dossier.py) shows some of the same parts.
"""
