"""The whole table of the sampler of masks, from the half that the sampler makes."""

from hushgrad.masks.gaussian import lower_half


def cumulative_table(bits):
    """(first, [2⁶⁴ P(Y ≤ first), 2⁶⁴ P(Y ≤ first + 1), …]) of σ = 2^bits, symmetric about 0."""
    lower = lower_half(bits)
    return -len(lower), [*reversed(lower), *[2**64 - entry for entry in lower]]
