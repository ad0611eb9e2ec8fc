"""A neighbour whose messages depend on everything that it has heard, for runs with a wire."""

import numpy as np


class Adaptive:
    """Agent 2 perturbs everything that it sends, by a function of everything that it has heard."""

    def __init__(self, size=1.0):
        self.heard, self.size = 0.0, size

    def __call__(self, k, sender, receiver, payload):
        del k
        if receiver == 2:
            self.heard = 0.5 * self.heard + sum(payload)
        shift = self.size * np.sin(self.heard)
        return tuple(v + shift for v in payload) if sender == 2 else payload
