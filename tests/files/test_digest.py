"""The digest that names a run's checkpoint and an interrupted study."""

import numpy as np

from hushgrad.files.digest import content_digest


def test_equal_contents_have_equal_digests():
    one = content_digest(["text", np.arange(6.0).reshape(2, 3).T])
    assert one == content_digest(["text", np.arange(6.0).reshape(2, 3).T.copy()])
    assert len(one) == 32


def test_order_and_borders_of_the_parts_count():
    parts = [["ab", "c"], ["a", "bc"], ["abc"], ["c", "ab"], ["ab", "c", ""]]
    assert len({content_digest(p) for p in parts}) == len(parts)
