"""The weights with which agents mix what they hear, by rule or by matrix, checked before use.

Assumption 1 of the paper: W1 = 1, 1ᵀW = 1ᵀ, w_ii > 0, w_ij > 0 if and only if j sends to i, and
η = ‖W − 11ᵀ/m‖ < 1, which the other conditions imply when the graph is (strongly) connected.
Matrices R and C for directed graphs satisfy it with W1 = 1 (row) or 1ᵀW = 1ᵀ (column) only.

`W[i, j]` is the weight that i gives to what comes from j. Inside there is one number per agent and
one per arc, never an m x m matrix.
"""

from hushgrad.mixing.network import Network
from hushgrad.mixing.rules import RULES
from hushgrad.mixing.weights import Kind, Weights

__all__ = ["RULES", "Kind", "Network", "Weights"]
