"""TOML tables turned into objects, and what is wrong with them said by file, line and key."""
