import pytest
from hypothesis import settings

# compiled code makes the first example slow and the others fast: no deadline says anything
settings.register_profile("hushgrad", deadline=None, derandomize=True)
settings.load_profile("hushgrad")


@pytest.fixture(autouse=True)
def _docs_see_numpy(doctest_namespace):
    import numpy as np

    doctest_namespace["np"] = np
