"""Connections to the neighbours: TLS or in memory, dialled, watched, replaced."""
