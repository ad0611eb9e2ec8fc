"""An agent's own objective: its data files and its gradient."""
