"""A whole network of agent processes on one machine, for `--engine processes`."""
