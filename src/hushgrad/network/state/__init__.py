"""The state directory of an agent: its journal, its samples, and the position that they hold."""
