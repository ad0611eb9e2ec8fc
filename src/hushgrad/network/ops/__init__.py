"""Everything that an operator uses: the command, logs, metrics, doctor, probe and results."""
