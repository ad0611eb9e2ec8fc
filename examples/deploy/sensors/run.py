"""Five sensors, each of which sees one direction only, estimate a vector together over TLS.

python examples/deploy/sensors/run.py [DIRECTORY]     where everything is kept; default: nowhere

Prints every sensor's estimate, how far it is from least squares on all readings, and how much of
the vector its own readings determine.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import local  # noqa: E402  # needs the path above
import make_agents  # noqa: E402  # needs the path above

NAMES = make_agents.NAMES


def main(directory):
    make_agents.write_measurements(directory)
    local.settle(directory, {name: make_agents.agent_file(i) for i, name in enumerate(NAMES)})
    local.run(directory, NAMES)

    tables = [
        np.loadtxt(directory / name / "measurements.csv", delimiter=",", skiprows=1)
        for name in NAMES
    ]
    everything = np.vstack(tables)
    pooled = np.linalg.lstsq(everything[:, :2], everything[:, 2])[0]
    for name, table, result in zip(
        NAMES, tables, local.results(directory, NAMES).values(), strict=True
    ):
        rank = np.linalg.matrix_rank(table[:, :2], tol=1e-6)
        print(
            f"{name}: {result.summary} after {result.iterations} iterations, θ = "
            f"{result.theta.round(6)}, {np.abs(result.theta - pooled).max():.1e} from all readings "
            f"together; its own determine {rank} of 2 directions"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(Path(directory))
