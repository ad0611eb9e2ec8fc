"""The file of an agent, `agent.toml`: its model, its parser and its checks."""
