"""The keys of an agent: its identity, its secret draws, its part of the masks."""
