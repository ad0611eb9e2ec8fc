"""Connections to the neighbours: over TLS or in memory, dialled, watched, and replaced."""
