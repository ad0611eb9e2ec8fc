"""What an operator uses: command, logs, metrics, doctor, probe, results."""
