"""Modules that several tests share; `pythonpath` in pyproject.toml makes them importable."""
