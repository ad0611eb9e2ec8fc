import pytest
from hypothesis import settings

# the first example compiles and is slow, so no deadline fits all examples
settings.register_profile("hushgrad", deadline=None, derandomize=True)
settings.load_profile("hushgrad")


@pytest.fixture(autouse=True)
def _docs_see_numpy(doctest_namespace):
    import numpy as np

    doctest_namespace["np"] = np
