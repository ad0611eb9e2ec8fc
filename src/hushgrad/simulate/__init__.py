"""The simulator: all agents at once in JAX, or each alone in NumPy, and the results of runs.

`hg.run` and `hg.compare` start it. Drivers of a user's own take a `RunRequest` and return an
`Outcome`.
"""

from typing import TYPE_CHECKING

from hushgrad.exports import lazy_exports

if TYPE_CHECKING:
    from hushgrad.simulate.request import Outcome, RunRequest
    from hushgrad.simulate.result import Comparison, Run, Traffic, load_run
    from hushgrad.simulate.transcript import Channel, Transcript

__all__ = [
    "Channel",
    "Comparison",
    "Outcome",
    "Run",
    "RunRequest",
    "Traffic",
    "Transcript",
    "load_run",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "request": "Outcome RunRequest",
        "result": "Comparison Run Traffic load_run",
        "transcript": "Channel Transcript",
    },
)
