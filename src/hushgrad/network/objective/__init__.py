"""The objective of one agent: its data files and its gradient."""
