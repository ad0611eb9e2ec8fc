"""The networked agent: identity, configuration, protocol, journal, and what an operator sees."""
