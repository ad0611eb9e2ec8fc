"""An agent's keys: its identity, its secret draws, its share of the masks."""
