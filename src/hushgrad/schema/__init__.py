"""Objects from TOML tables. An error names the file, the line and the key of a mistake.

`hushgrad.studies` reads study files with this package; `hushgrad.network.config` reads agents'
files with it.
"""
