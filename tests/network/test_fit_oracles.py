"""Deployed agents' tables against statsmodels and lifelines on the pooled rows.

The bits of deployed agents are those of plain sums (test_programme.py), which
tests/fitting/test_other_libraries.py compares in more ways. `pip install statsmodels lifelines`.
"""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import hushgrad as hg
from hushgrad.network.ops.result import Status
from support import fit_network
from support.fits import cancer, design, model, pooled_columns, synthetic

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
CLOSE = 1e-8
# by default it ends by the deviance, with standard errors that are 2e-10 off
CONVERGED = {"tol": 0, "tol_criterion": "params", "maxiter": 30}
LINKED = hg.Network(hg.graphs.complete(3))


def deployed(directory, declared, sites):
    setting = fit_network.configs(directory, declared, sites, LINKED, tls=True)
    agents, results, _ = fit_network.run(setting, seconds=300)
    assert {r.status for r in results} == {Status.DONE}, [r.detail for r in results]
    assert len({fit_network.bits(agent.fitted) for agent in agents}) == 1
    return agents[0].fitted


@pytest.fixture(scope="module")
def sm():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("statsmodels.api")


def check(result, theirs):
    interval = np.asarray(theirs.conf_int())
    pairs = {
        "coefficients": (result.estimate, theirs.params),
        "errors": (result.standard_error, theirs.bse),
        "intervals": (np.column_stack([result.low, result.high]), interval),
        "AIC": (result.aic, theirs.aic),
        "likelihood": (result.log_likelihood, theirs.llf),
    }
    if hasattr(theirs, "deviance"):
        pairs["deviance"] = (result.deviance, theirs.deviance)
    for name, (ours, other) in pairs.items():
        assert_allclose(ours, other, rtol=CLOSE, err_msg=name)
    off = np.abs(result.p_value / theirs.pvalues - 1)
    assert (off < CLOSE).all()
    print({name: f"{np.max(np.abs(np.asarray(a) / np.asarray(b) - 1)):.1e}"
           for name, (a, b) in pairs.items()}, f"p {off.max():.1e}")  # fmt: skip


@pytest.mark.parametrize("kind", ["linear", "logistic", "poisson"])
def test_generalised_linear_on_4000_rows(sm, tmp_path, kind):
    more = {"offset": "log_exposure"} if kind == "poisson" else {}
    declared = model(kind, **more)
    rows, X = pooled_columns(synthetic()), design(declared, synthetic())
    y = rows[declared.outcome]
    if kind == "linear":
        theirs = sm.OLS(y, X).fit(method="qr")
    else:
        family = sm.families.Binomial() if kind == "logistic" else sm.families.Poisson()
        offset = rows["log_exposure"] if more else None
        theirs = sm.GLM(y, X, family=family, offset=offset).fit(**CONVERGED)
    check(deployed(tmp_path, declared, synthetic()), theirs)


def test_breast_cancer_of_60_150_and_359_rows(sm, tmp_path):
    names, sites = cancer(8)
    declared = hg.Model(kind="logistic", outcome="benign", columns=names)
    X, y = design(declared, sites), pooled_columns(sites)["benign"]
    size = X.std(axis=0) + (X.std(axis=0) == 0)
    theirs = sm.GLM(y, X / size, family=sm.families.Binomial()).fit(**CONVERGED)
    result = deployed(tmp_path, declared, sites)
    assert_allclose(result.estimate, theirs.params / size, rtol=CLOSE)
    assert_allclose(result.standard_error, theirs.bse / size, rtol=CLOSE)
    assert_allclose(result.deviance, theirs.deviance, rtol=CLOSE)


def test_cox(tmp_path):
    lifelines = pytest.importorskip("lifelines")
    pd = pytest.importorskip("pandas")
    declared = model("cox", columns=("age", "year"), factors={})
    rows = pooled_columns(synthetic())
    frame = pd.DataFrame({k: rows[k] for k in ("age", "year", "time", "event")})
    frame["site"] = np.repeat([0, 1, 2], [200, 800, 3000])
    theirs = lifelines.CoxPHFitter().fit(
        frame, "time", "event", strata=["site"], fit_options={"precision": 1e-12}
    )
    result = deployed(tmp_path, declared, synthetic())
    assert_allclose(result.estimate, theirs.params_, rtol=1e-6)
    assert_allclose(result.standard_error, theirs.standard_errors_, rtol=1e-6)
