"""TOML tables turned into objects; mistakes are named by file, line and key.

Study files (`hushgrad.studies`) and agents' files (`hushgrad.network.config`) use it.
"""
