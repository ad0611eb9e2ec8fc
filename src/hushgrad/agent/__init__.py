"""One agent, without I/O, in NumPy: its links and weights, its step machine, its messages.

Agents in memory (`hushgrad.simulate.in_memory`), deployed agents (`hushgrad.network`) and audits
(`hushgrad.privacy.replay`) use this package.
"""
