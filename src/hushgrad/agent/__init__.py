"""One agent, without I/O, in NumPy: its links and weights, its step machine, its messages."""
