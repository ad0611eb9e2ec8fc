"""Runs for people and papers: plots and exports."""
