"""What all tests share: no deadlines for hypothesis, compiled programs kept from run to run."""

import os

import pytest
from hypothesis import settings

# the first example compiles and is slow, so no deadline fits all examples
settings.register_profile("hushgrad", deadline=None, derandomize=True)
settings.load_profile("hushgrad")


@pytest.fixture(scope="session", autouse=True)
def _keep_compiled_programs(request):
    """Let JAX keep what it compiles beside pytest's own cache: two workers and later runs share it.

    Only this process reads it. Half of a file that another worker still writes makes JAX warn and
    compile; pyproject.toml ignores the warning.
    """
    if hasattr(request.config, "cache"):
        import jax

        jax.config.update("jax_compilation_cache_dir", str(request.config.cache.mkdir("jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


@pytest.fixture(autouse=True)
def _compile_as_users_do_where_it_matters(request):
    """Under `make test` let XLA optimise for the tests marked `optimised` only.

    The others compare with a tolerance, and their programs are compiled in two thirds of the time.
    """
    if os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS"):
        import jax

        is_quick = request.node.get_closest_marker("optimised") is None
        if is_quick != jax.config.read("jax_disable_most_optimizations"):
            jax.config.update("jax_disable_most_optimizations", is_quick)
            if not is_quick:
                jax.clear_caches()


@pytest.fixture(autouse=True)
def _docs_see_numpy(doctest_namespace):
    import numpy as np

    doctest_namespace["np"] = np
