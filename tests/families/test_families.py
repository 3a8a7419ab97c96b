"""The table of families: moments against draws, names and links, and what a wrong one is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi.families.table import FAMILIES, Family, find_family, links_of
from natvi.x64 import float64
from strategies import quick_jit


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


ALL = [find_family(name, link) for name in (*FAMILIES, "binomial") for link in links_of(name)]
RESPONSES = {"poisson": [0.0, 2.0, 90.0], "negative_binomial": [0.0, 2.0, 90.0], "gamma": [1e-9, 1.0, 1e9]}


@pytest.mark.parametrize("family", ALL, ids=lambda family: f"{family.name}-{family.link}")
def test_mean_variance_start_and_draw(family: Family):
    eta = jnp.full(20_000, 0.3)
    disp = jnp.asarray(0.4) if family.has_dispersion else None
    draws = np.asarray(quick_jit(family.draw)(jax.random.key(0), eta, disp))
    mean = np.asarray(family.mean(eta))
    variance = np.asarray(family.variance(family.mean(eta), disp))
    assert draws.shape == variance.shape == eta.shape and draws.dtype == eta.dtype
    assert abs(np.mean(draws - mean)) / np.sqrt(variance[0] / draws.size) < 4
    spread = (draws - mean) ** 2
    assert abs(np.mean(spread - variance)) / (np.std(spread) / np.sqrt(draws.size)) < 4
    y = jnp.asarray(RESPONSES.get(family.name, [0.0, 0.4, 1.0]))
    assert np.all(np.isfinite(np.asarray(family.start(y)))) and np.all(np.diff(np.asarray(family.start(y))) > 0)
    assert isinstance(hash(family), int)


def test_find_family():
    assert find_family("bernoulli") is FAMILIES["bernoulli"]
    assert find_family("gaussian", "identity") is FAMILIES["gaussian"]
    binomial = find_family("binomial", "cloglog")
    assert binomial.name == "binomial" and binomial.expected is find_family("bernoulli", "cloglog").expected
    assert find_family("binomial").link == "logit"


@pytest.mark.parametrize(
    ("name", "link", "words"),
    [
        ("poison", None, ("Unknown family 'poison'", "Did you mean 'poisson'?", "negative_binomial")),
        ("bernoulli", "probitt", ("no link 'probitt'", "Did you mean 'probit'?", "logit, probit, cloglog")),
        ("poisson", "identity", ("no link 'identity'", "only link is 'log'", "Leave link out")),
        (3, None, ("Unknown family 3",)),
    ],
)
def test_unknown_family_or_link(name, link, words):
    find = getattr(find_family, "__wrapped__", find_family)  # without the check of annotations
    with pytest.raises(ValueError, match="family") as caught:
        find(name, link)
    for word in words:
        assert word in str(caught.value)
