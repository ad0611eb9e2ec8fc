"""The operation of an agent: its command, logs, metrics, doctor, probe and results."""
