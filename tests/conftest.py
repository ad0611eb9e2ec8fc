"""What all tests share: no deadlines for hypothesis, compiled programs kept from run to run."""

import functools
import os
import signal

import pytest
from hypothesis import settings

# the first example compiles and is slow, so no deadline fits all examples
settings.register_profile("hushgrad", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("hushgrad"), max_examples=25)
settings.load_profile("hushgrad")  # `make test` takes "quick"


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


@pytest.fixture(scope="session", autouse=True)
def _hear_ctrl_c():
    """Who started the tests in the background may have left SIGINT ignored, also by children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@functools.cache
def _optimised_programs():
    from hushgrad.simulate.stacked import program

    return functools.lru_cache(maxsize=64)(program._cached_program.__wrapped__)


@pytest.fixture(autouse=True)
def _compile_as_users_do_where_it_matters(request, monkeypatch):
    """Under `make test` let XLA optimise for the tests marked `optimised` only.

    The others compare with a tolerance, and their programs are compiled sooner. The two kinds of
    tests share no program.
    """
    if os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS"):
        import jax

        optimised = request.node.get_closest_marker("optimised") is not None
        jax.config.update("jax_disable_most_optimizations", not optimised)
        if optimised:
            from hushgrad.simulate.stacked import program

            monkeypatch.setattr(program, "_cached_program", _optimised_programs())


@pytest.fixture(autouse=True)
def _docs_see_numpy(doctest_namespace):
    import numpy as np

    doctest_namespace["np"] = np
