"""An agent's file: its model, its parser and its checks."""
