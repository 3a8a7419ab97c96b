"""Deep GLMs as scikit-learn estimators: its own checks, and what they do besides."""

import pickle

import numpy as np
import pandas as pd
import pytest

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

import natvi  # noqa: E402
from natvi import DeepGLMClassifier, DeepGLMRegressor  # noqa: E402
from natvi.run import storage  # noqa: E402

rng = np.random.default_rng(0)
frame = pd.DataFrame(rng.normal(size=(300, 4)), columns=["wind", "rain", "sun", "snow"])
y = 3 + 2 * frame["rain"].to_numpy() ** 2 + 0.2 * rng.normal(size=300)
labels = np.where(frame["sun"] > 0, "yes", "no")


@pytest.fixture(scope="module")
def regressor():
    return DeepGLMRegressor(epochs=60).fit(frame, y)


@pytest.fixture(scope="module")
def classifier():
    return DeepGLMClassifier(epochs=30).fit(frame, labels)


def test_a_regressor_predicts_with_intervals(regressor):
    assert regressor.score(frame, y) > 0.9
    intervals = regressor.predict_interval(frame, prob=0.9)
    inside = (intervals["q5"] < y) & (y < intervals["q95"])
    assert inside.mean() > 0.8
    np.testing.assert_allclose(intervals["mean"], regressor.predict(frame), rtol=1e-5)
    assert regressor.log_score(frame, y, num_draws=50) > -1.5
    assert isinstance(regressor.result_, natvi.Result) and "deep GLM" in repr(regressor.result_)


def test_relevance_names_the_input_that_matters(regressor, classifier):
    assert regressor.relevance_.index[0] == "rain" and regressor.relevance_.iloc[0] == 1
    assert classifier.relevance_.index[0] == "sun"
    assert len(regressor.plot_relevance().get_yticks()) == 4


def test_a_classifier_predicts_labels(classifier):
    assert set(classifier.predict(frame)) <= {"yes", "no"} and classifier.score(frame, labels) > 0.9
    table = classifier.predict_proba(frame)
    np.testing.assert_allclose(table.sum(axis=1), 1)
    assert classifier.log_score(frame, labels, num_draws=50) > -0.4
    with pytest.raises(ValueError, match="not among the classes"):
        classifier.log_score(frame[:1], ["perhaps"])


def product_rows(seed, n=300, p=10):
    X = np.random.default_rng(seed).normal(size=(n, p))
    return X, X[:, 0] * X[:, 1]


def test_defaults_learn_an_interaction_of_two_inputs_among_ten():
    (X, product), (new, new_product) = product_rows(7), product_rows(8, 1000)
    model = DeepGLMClassifier().fit(X, product > 0)
    assert model.score(new, new_product > 0) > 0.9 and set(model.relevance_.index[:2]) == {"x1", "x2"}


def test_defaults_learn_it_piece_by_piece():
    model = DeepGLMClassifier()
    for seed in range(12):
        X, product = product_rows(seed, 1000, 4)
        for _ in range(10):
            model.partial_fit(X, product > 0, classes=[False, True])
    X, product = product_rows(99, 1000, 4)
    assert model.score(X, product > 0) > 0.9


def test_counts():
    counts = rng.poisson(np.exp(0.5 + frame["wind"]))
    model = DeepGLMRegressor(response="poisson", epochs=40).fit(frame, counts)
    assert model.relevance_.index[0] == "wind"
    assert (model.predict_interval(frame)["q2.5"] >= 0).all()


def test_saved_without_pickle_and_with(regressor, classifier, tmp_path):
    for model in (regressor, classifier):
        path = model.save(tmp_path / "model")
        again = type(model).load(path)
        np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
        assert again.get_params() == model.get_params()
        assert natvi.load(path).elbo == model.result_.elbo
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(frame), model.predict(frame))
    with pytest.raises(storage.StorageError, match="does not hold a DeepGLMRegressor"):
        DeepGLMRegressor.load(path)


def test_learning_piece_by_piece():
    model = DeepGLMClassifier(hidden=(8,))
    with pytest.raises(ValueError, match="needs classes"):
        model.partial_fit(frame[:100], labels[:100])
    for _ in range(8):
        for k in range(0, 300, 100):
            model.partial_fit(frame[k : k + 100], labels[k : k + 100], classes=["yes", "no"])
    assert model.score(frame, labels) > 0.85 and model.result_.model.num_rows == 2400


def test_one_more_piece_goes_on_from_a_fit_and_from_a_file(regressor, tmp_path):
    before = regressor.predict(frame)
    for model in (pickle.loads(pickle.dumps(regressor)), DeepGLMRegressor.load(regressor.save(tmp_path / "model"))):
        model.partial_fit(frame[:100], y[:100])
        assert model.result_.model.num_rows == 400
        assert np.corrcoef(model.predict(frame), before)[0, 1] > 0.95


def test_early_stopping_pipelines_clones_and_grids():
    model = DeepGLMRegressor(hidden=(8,), epochs=40, early_stopping=True, patience=2)
    fitted = make_pipeline(StandardScaler(), clone(model)).fit(frame, y)
    assert 1 <= fitted[-1].n_iter_ <= 40 and np.isfinite(fitted[-1].result_.model.validation).any()
    search = GridSearchCV(DeepGLMRegressor(epochs=5), {"hidden": [(4,), (8,)]}, cv=2).fit(frame, y)
    assert search.best_params_["hidden"] in [(4,), (8,)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": frame.assign(snow="white")}, "OneHotEncoder"),
        ({"X": frame.assign(snow=np.nan)}, "NaN"),
        ({"y": np.where(y > 4, np.nan, y)}, "NaN"),
        ({"hidden": (0,)}, "hidden must hold"),
        ({"optimizer": "sgd"}, "optimizer must be one of"),
        ({"batch_size": 1000}, "larger than the data"),
        ({"response": "gamma"}, "'normal' or 'poisson'"),
        ({"early_stopping": True, "validation_fraction": 2.0}, "validation_fraction"),
        ({"early_stopping": True, "validation_fraction": "a"}, "validation_fraction"),
        ({"X": frame.assign(snow=pd.Timestamp("2020-01-01"))}, r"'snow' \(datetime64.*no numbers"),
    ],
)
def test_mistakes_are_explained(change, message):
    data = {"X": frame, "y": y} | {k: v for k, v in change.items() if k in ("X", "y")}
    model = DeepGLMRegressor(epochs=1, **{k: v for k, v in change.items() if k not in ("X", "y")})
    with pytest.raises(ValueError, match=message):
        model.fit(**data)


def test_one_class_is_not_enough():
    with pytest.raises(ValueError, match="two classes"):
        DeepGLMClassifier().fit(frame, np.repeat("yes", 300))


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [DeepGLMRegressor, DeepGLMClassifier])
def test_scikit_learns_own_checks(estimator):
    failed = [
        one["check_name"]
        for one in check_estimator(estimator(epochs=30), on_fail=None, on_skip=None)
        if one["status"] not in ("passed", "skipped")
    ]
    assert failed == []


def test_labels_that_are_missing_and_settings_that_cannot_be():
    X, y = np.arange(8.0).reshape(4, 2), np.array(["a", None, "b", "a"], dtype=object)
    with pytest.raises(ValueError, match="1 missing labels of 4"):
        DeepGLMClassifier().fit(X, y)
    with pytest.raises(ValueError, match="2 missing labels of 4"):
        DeepGLMClassifier().fit(X, pd.Series(["a", pd.NA, "b", pd.NA], dtype="string"))
    with pytest.raises(ValueError, match="'normal' or 'poisson'"):
        DeepGLMRegressor(response="bernoulli").fit(X, X[:, 0])
    with pytest.raises(ValueError, match="random_state"):
        DeepGLMRegressor(random_state="a").fit(X, X[:, 0])
