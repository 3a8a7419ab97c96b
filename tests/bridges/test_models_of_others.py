"""Models of NumPyro and PyMC: the same answers as a function, the model's own names, and clear answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natvi

numpyro = pytest.importorskip("numpyro")
dist = numpyro.distributions

RNG = np.random.default_rng(0)
AT = np.repeat(np.arange(8), 6)
X = RNG.standard_normal(48)
Y = 0.5 + 0.7 * X + RNG.standard_normal(8)[AT] + 0.5 * RNG.standard_normal(48)


def intercepts(x, at, y=None):
    a = numpyro.sample("a", dist.Normal(0.0, 5.0))
    b = numpyro.sample("b", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.Exponential(1.0))
    sd = numpyro.sample("sd", dist.Exponential(1.0))
    with numpyro.plate("group", 8):
        u = numpyro.sample("u", dist.Normal(0.0, tau))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(a + b * x + u[at], sd), obs=y)


def as_a_function(p):
    like = -0.5 * jnp.sum(((Y - p["a"] - p["b"] * X - p["u"][AT]) / p["sd"]) ** 2) - 48 * jnp.log(p["sd"])
    prior = -0.5 * (p["a"] / 5) ** 2 - 0.5 * (p["b"] / 2) ** 2 - p["tau"] - p["sd"]
    return like + prior - 0.5 * jnp.sum((p["u"] / p["tau"]) ** 2) - 8 * jnp.log(p["tau"])


def test_a_hierarchy_of_numpyro_is_the_function_with_names(tmp_path):
    model = natvi.from_numpyro(intercepts, X, AT, y=Y)
    result = model.fit()
    init = {"a": 0.0, "b": 0.0, "sd": 1.0, "tau": 1.0, "u": jnp.zeros(8)}
    function = natvi.fit(as_a_function, init, constrain={"sd": "positive", "tau": "positive"})
    ours, theirs = (one.summary().sort_index() for one in (result, function))
    assert list(ours.index) == list(theirs.index)
    np.testing.assert_array_less(np.abs(ours["mean"] - theirs["mean"]) / theirs["sd"], 0.15)
    np.testing.assert_allclose(ours["sd"], theirs["sd"], rtol=0.15)
    tree = model.to_arviz(result, num_samples=50)
    assert tree["posterior"]["u"].dims == ("chain", "draw", "group")
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "row")
    assert tree["posterior_predictive"]["y"].shape == (1, 50, 48) and tree["observed_data"]["y"].shape == (48,)
    assert result.to_arviz(20)["posterior"]["u"].dims == ("chain", "draw", "group")
    replicated = tree["posterior_predictive"]["y"].to_numpy()[0].mean(axis=0)
    assert np.corrcoef(replicated, Y)[0, 1] > 0.8
    new = model.posterior_predictive(result, X[:5], AT[:5], num_samples=7)
    assert new["y"].shape == (7, 5)
    again = natvi.load(result.save(tmp_path / "fit.natvi"))
    assert again.to_arviz(20)["posterior"]["u"].dims == ("chain", "draw", "group")


def discrete():
    numpyro.sample("z", dist.Bernoulli(0.5))


def subsampled(y):
    a = numpyro.sample("a", dist.Normal())
    with numpyro.plate("rows", 10, subsample_size=2):
        numpyro.sample("y", dist.Normal(a), obs=numpyro.subsample(y, 0))


def with_a_param():
    numpyro.sample("x", dist.Normal(numpyro.param("loc", 0.0)))


def of_nothing():
    numpyro.sample("x", dist.Normal(), obs=1.0)


def enumerated():
    weights = numpyro.sample("w", dist.Dirichlet(jnp.ones(2)))
    numpyro.sample("kind", dist.Categorical(weights), infer={"enumerate": "parallel"})


def off_its_support():
    numpyro.factor("impossible", -jnp.inf * jnp.exp(numpyro.sample("a", dist.Normal())))


def of_its_own_chance():
    x = numpyro.sample("x", dist.Normal())
    numpyro.factor("noise", x * jax.random.normal(numpyro.prng_key()))


def of_the_mean(y):
    numpyro.sample("y", dist.Normal(numpyro.sample("mean", dist.Normal())), obs=y)


@pytest.mark.parametrize(
    ("model", "args", "message"),
    [
        (3, (), "needs a model"),
        (of_its_own_chance, (), r"random numbers of its own \(numpyro\.prng_key\)"),
        (discrete, (), "'z' is discrete and not observed"),
        (subsampled, (np.zeros(10),), "takes 2 of 10 rows at random"),
        (enumerated, (), "'kind' is discrete and not observed"),
        (with_a_param, (), "'loc' is a numpyro.param"),
        (of_nothing, (), "nothing to fit"),
        (off_its_support, (), "finds no point at which"),
    ],
)
def test_models_that_cannot_be_fitted_get_a_clear_answer(model, args, message):
    with pytest.raises(ValueError, match=message):
        natvi.from_numpyro(model, *args).fit()


@pytest.mark.filterwarnings("ignore:.*ut-of-support values:UserWarning")
def test_missing_data_of_numpyro_are_named():
    with pytest.raises(ValueError, match="look for missing values"):
        natvi.from_numpyro(of_the_mean, np.array([1.0, np.nan])).fit()


def test_an_improper_prior_of_numpyro_is_one():
    def improper(y):
        flat = dist.ImproperUniform(dist.constraints.positive, (), ())
        numpyro.sample("y", dist.Normal(numpyro.sample("mean", flat), 1.0), obs=y)

    result = natvi.from_numpyro(improper, np.full(50, 9.0)).fit()
    assert result.summary().loc["mean", "mean"] == pytest.approx(9.0, abs=0.02) and result.trust == "good"


def test_without_pymc_the_cure_is_named():
    try:
        import pymc  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match=r"natvi\[pymc\]"):
            natvi.from_pymc(None)


# three models, each in three languages


def same(ours, theirs):
    ours, theirs = (one.summary().sort_index() for one in (ours, theirs))
    assert list(ours.index) == list(theirs.index)
    np.testing.assert_array_less(np.abs(ours["mean"] - theirs["mean"]) / theirs["sd"], 0.15)
    np.testing.assert_allclose(ours["sd"], theirs["sd"], rtol=0.15)


def test_a_hierarchy_of_pymc_is_the_function_with_names():
    pm = pytest.importorskip("pymc")
    with pm.Model(coords={"group": list("abcdefgh")}) as model:
        a, b = pm.Normal("a", 0.0, 5.0), pm.Normal("b", 0.0, 2.0)
        tau, sd = pm.Exponential("tau", 1.0), pm.Exponential("sd", 1.0)
        u = pm.Normal("u", 0.0, tau, dims="group")
        pm.Normal("y", a + b * X + u[AT], sd, observed=Y)
    result = natvi.from_pymc(model).fit()
    init = {"a": 0.0, "b": 0.0, "sd": 1.0, "tau": 1.0, "u": jnp.zeros(8)}
    same(result, natvi.fit(as_a_function, init, constrain={"sd": "positive", "tau": "positive"}))
    assert result.to_arviz(20)["posterior"]["u"].coords["group"].to_numpy().tolist() == list("abcdefgh")
    tree = natvi.from_pymc(model).to_arviz(result, num_samples=20)
    assert tree["posterior_predictive"]["y"].shape == tree["log_likelihood"]["y"].shape == (1, 20, 48)
    assert tree["observed_data"]["y"].shape == (48,)
    with pm.Model() as discrete:
        pm.Bernoulli("z", 0.5)
    with pytest.raises(ValueError, match="'z' is discrete"):
        natvi.from_pymc(discrete)
    with pytest.raises(ValueError, match=r"needs a pymc\.Model"):
        natvi.from_pymc(3)
    with pm.Model() as minibatched:
        batch = pm.Minibatch(Y, batch_size=8)
        pm.Normal("y", pm.Normal("mean"), observed=batch, total_size=48)
    with pytest.raises(ValueError, match=r"e\.g\. by pm\.Minibatch"):
        natvi.from_pymc(minibatched).fit()


@pytest.mark.filterwarnings("ignore:pytensor.as_op is deprecated:FutureWarning")
def test_what_jax_does_not_know_of_a_pymc_model_is_named():
    pm = pytest.importorskip("pymc")
    import pytensor.tensor as pt
    from pytensor.compile.ops import as_op

    @as_op(itypes=[pt.dscalar], otypes=[pt.dscalar])
    def black_box(x):
        return np.asarray(x**2)

    with pm.Model() as model:
        pm.Normal("y", black_box(pm.Normal("a")), observed=1.0)
    with pytest.raises(ValueError, match="unknown to JAX"):
        natvi.from_pymc(model).fit()


EFFECT, ERROR = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
DEAD, DOSE = np.array([0.0, 0, 1, 0, 1, 1, 0, 1, 1, 1]), np.linspace(-1.0, 1.0, 10)


def schools():
    mu, tau = numpyro.sample("mu", dist.Normal(0.0, 10.0)), numpyro.sample("tau", dist.HalfNormal(10.0))
    theta = numpyro.sample("theta", dist.Normal(mu, tau).expand([8]))
    numpyro.sample("y", dist.Normal(theta, ERROR), obs=EFFECT)


def schools_function(p):
    prior = -0.5 * (p["mu"] / 10) ** 2 - 0.5 * (p["tau"] / 10) ** 2
    groups = -0.5 * jnp.sum(((p["theta"] - p["mu"]) / p["tau"]) ** 2) - 8 * jnp.log(p["tau"])
    return prior + groups - 0.5 * jnp.sum(((EFFECT - p["theta"]) / ERROR) ** 2)


def logistic():
    a, b = numpyro.sample("a", dist.Normal(0.0, 3.0)), numpyro.sample("b", dist.Normal(0.0, 3.0))
    numpyro.sample("y", dist.Bernoulli(logits=a + b * DOSE), obs=DEAD)


def logistic_function(p):
    eta = p["a"] + p["b"] * DOSE
    return jnp.sum(DEAD * eta - jnp.logaddexp(0.0, eta)) - 0.5 * (p["a"] ** 2 + p["b"] ** 2) / 9


def pymc_model(name):
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        if name == "schools":
            mu, tau = pm.Normal("mu", 0.0, 10.0), pm.HalfNormal("tau", 10.0)
            pm.Normal("y", pm.Normal("theta", mu, tau, shape=8), ERROR, observed=EFFECT)
        else:
            a, b = pm.Normal("a", 0.0, 3.0), pm.Normal("b", 0.0, 3.0)
            pm.Bernoulli("y", logit_p=a + b * DOSE, observed=DEAD)
    return natvi.from_pymc(model)


@pytest.mark.parametrize("name", ["schools", "logistic"])
def test_one_model_in_three_languages(name):
    if name == "schools":
        init = {"mu": 0.0, "tau": 1.0, "theta": jnp.zeros(8)}
        function = natvi.fit(schools_function, init, constrain={"tau": "positive"})
    else:
        function = natvi.fit(logistic_function, {"a": 0.0, "b": 0.0})
    found = [natvi.from_numpyro(schools if name == "schools" else logistic).fit(), pymc_model(name).fit()]
    for result in found:
        same(result, function)
        assert result.trust == function.trust == "good"
        assert set(result.to_arviz(10)["posterior"].data_vars) == set(function.to_arviz(10)["posterior"].data_vars)


def test_a_model_of_bambi_keeps_its_names():
    """Bambi asks for an older formulae than the tests of the formula door: where it is missing, this is not run."""
    bambi = pytest.importorskip("bambi", reason="Bambi needs formulae 0.6, an environment of its own")
    import pandas as pd

    frame = pd.DataFrame({"y": Y, "x": X, "group": [list("abcdefgh")[g] for g in AT]})
    result = natvi.from_pymc(bambi.Model("y ~ x + (1 | group)", frame)).fit()
    assert {"Intercept", "x", "sigma"} <= set(result.sample(3))
    slope = np.polyfit(X, Y - np.array([Y[AT == g].mean() for g in range(8)])[AT], 1)[0]
    assert result.summary().loc["x", "mean"] == pytest.approx(slope, abs=0.2)
