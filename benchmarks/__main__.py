"""`python -m benchmarks` runs the benchmark of the simulator."""

import sys

from benchmarks.simulator.__main__ import main

sys.exit(main())
