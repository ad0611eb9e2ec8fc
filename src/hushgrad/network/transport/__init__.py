"""Connections to the neighbours, over TLS or in memory: dialling, watching, dispatch of frames."""
