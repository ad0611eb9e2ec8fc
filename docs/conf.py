"""Sphinx: MyST pages, the furo theme, warnings as errors (`make docs`)."""

import tomllib
from pathlib import Path

_about = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))

project = "hushgrad"
author = "hushgrad contributors"
project_copyright = author
version = release = _about["project"]["version"]

extensions = ["myst_parser"]
myst_heading_anchors = 4  # so that pages link to each other's headings
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"hushgrad {version}"
html_show_sourcelink = False
