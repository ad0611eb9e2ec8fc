"""The benchmark lies beside src, not in it: only a clone has it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
