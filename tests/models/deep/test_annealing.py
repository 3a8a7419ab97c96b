"""Rows that weigh more at first: a net of few rows learns before shrinkage can empty it."""

import numpy as np
import pytest

from natvi.models.deep.glm_door import fit_deep_glm, unfinished
from natvi.models.deep.training import Annealing, Training
from natvi.result.trust import REFUSE
from natvi.run import Outcome

rng = np.random.default_rng(300)
X = rng.normal(size=(200, 6))
PRODUCT = X[:, 0] * X[:, 1]
TRAINING = Training("snngm", 0.01, epochs=50, batch_size=10, annealing=0.5)


def test_the_weight_comes_down_to_one_and_stays():
    weights = [float(Annealing(40)(t)) for t in range(60)]
    assert weights[0] == pytest.approx(10) and np.all(np.diff(weights[:41]) < 0)
    assert weights[40:] == [1.0] * 20
    assert float(Annealing(40)(20, precision=50.0)) == pytest.approx(0.2)  # weight times precision: at most 10
    assert float(Annealing(40)(40, precision=50.0)) == 1.0
    assert Annealing()(7) == 1.0 and Annealing().start == 1.0


@pytest.mark.slow
def test_shrinkage_does_not_empty_the_net():
    fits = {share: fit_deep_glm(X, PRODUCT, training=TRAINING._replace(annealing=share)) for share in (0.0, 0.5)}
    explained = {k: 1 - np.mean((f.model.expected(X, 50) - PRODUCT) ** 2) / PRODUCT.var() for k, f in fits.items()}
    assert explained[0.5] > 0.8
    assert explained[0.0] < 0.2  # what annealing is for
    assert set(fits[0.5].model.relevance.index[:2]) == {"x1", "x2"}


def test_noise_is_still_shrunk_away():
    model = fit_deep_glm(X, rng.normal(size=200), training=TRAINING).model
    assert model.expected(X, 50).std() < 0.3


def test_every_rule_that_annealing_serves_takes_finite_steps():
    for optimizer in ("ivon", "vogn"):
        training = Training(optimizer, epochs=4, batch_size=10, annealing=0.5, beta2=0.999)
        found = fit_deep_glm(X, PRODUCT, hidden=(5,), training=training)
        assert found.outcome is Outcome.MAX_STEPS and np.isfinite(found.elbo), optimizer


def test_the_last_steps_are_those_of_the_bound_itself():
    q = fit_deep_glm(X, PRODUCT, hidden=(5,), training=TRAINING._replace(epochs=10)).model
    assert q.shape == pytest.approx(1 + 200 / 2)


def test_early_stopping_waits_for_the_end_of_annealing():
    held = (X[:50], rng.normal(size=50))  # nothing to learn: the first epochs are the best
    training = TRAINING._replace(epochs=20, patience=2)
    found = fit_deep_glm(X[50:], PRODUCT[50:], hidden=(5,), training=training, validation=held)
    curve = found.model.validation
    assert len(curve) >= 12 and np.isfinite(curve).all()
    assert int(found.state.watched.best.count) > 10 * 15


def test_a_fit_that_ends_in_annealing_is_not_trusted():
    half = TRAINING.annealing_of(len(X))(250)
    assert unfinished(1.0) == ()
    assert unfinished(float(half))[0].level == REFUSE and "weighed 3.2 times" in unfinished(float(half))[0].reasons[0]


def test_a_share_beyond_one_is_refused():
    with pytest.raises(ValueError, match="share of steps in which rows weigh"):
        fit_deep_glm(X, PRODUCT, training=TRAINING._replace(annealing=1.5))
