"""The command `hushgrad`, also as `python -m hushgrad`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Start an agent without the command line's libraries, and every other command in cli."""
    if sys.argv[1:2] in (["agent"], ["fit"]):
        from hushgrad.console import told
        from hushgrad.errors import HushgradError
        from hushgrad.network.ops.command import plain_options, run_agent

        options = plain_options(sys.argv[2:])
        if options is not None:
            try:
                sys.exit(run_agent(**options, is_fit=sys.argv[1] == "fit"))
            except (HushgradError, KeyboardInterrupt) as error:
                sys.exit(told(error))
            except BrokenPipeError:  # nobody reads any more: Python's last output goes nowhere
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                sys.exit(1)
    from hushgrad import cli

    cli.main()


if __name__ == "__main__":
    main()
