"""`python -m hushgrad` is the command `hushgrad`."""

from hushgrad.cli import main

main()
