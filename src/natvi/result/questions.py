"""The part of a result that answers what users ask next: comparisons, slopes, ratios, residuals, another formula."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from natvi.result.against_data import AgainstData, check_draws
from natvi.result.model import AnswersQuestions, SharesVariance, ask
from natvi.result.ratios import ODDS, RATES, ratio_table
from natvi.run.settings import check_seed
from natvi.show import plots

RESIDUALS = ("response", "pearson", "quantile")


class Questions(AgainstData):
    """Averages over the data, comparisons, ratios, covariances, residuals and changed models."""

    def means(
        self,
        variable: str,
        *,
        at: Any = None,
        by: Any = None,
        kind: str = "response",
        groups: str = "known",
        prob: float = 0.95,
        data: Any = None,
        num_draws: int = 2000,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Return the expected response, averaged over the data, had every row held each value of a column.

        Args:
            variable: A column of the data that the model reads.
            at: Values of it; by default all levels of a factor, or five values of a number.
            by: A column, or several, within whose cells to average.
            kind: "response" for expected responses, "link" for linear predictors.
            groups: "known" gives rows the effects of their groups, "new" those of one group never seen, "population"
                none.
            prob: The probability of the central intervals.
            data: Rows to average over other than the training data; of more than 20,000 an even selection is taken.
            num_draws: The number of draws.
            seed: The same seed gives the same answer.

        Returns:
            A frame with a line for every value and cell: mean, sd and interval.

        Example:
            >>> import natvi
            >>> fit = natvi.glm("y ~ width + C(color)", natvi.data.load_crabs(), family="bernoulli").fit()
            >>> narrow, wide = fit.means("width", at=[22, 28])["mean"]
            >>> bool(narrow < 0.4 and wide > 0.6)
            True
        """
        setting = _setting(kind, groups, data, num_draws, seed)
        return ask(self.model, AnswersQuestions).means(variable, at, by, check_probability(prob), setting)

    def compare(
        self,
        variable: str,
        *,
        levels: Any = None,
        pairs: str = "reference",
        by: Any = None,
        measure: str = "difference",
        kind: str = "response",
        groups: str = "known",
        prob: float = 0.95,
        data: Any = None,
        num_draws: int = 2000,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Compare the averages that `means` gives: what would change if every row held another value of a column.

        Args:
            variable: A column of the data that the model reads.
            levels: Values to compare; by default all levels of a factor, and for a number one more than each row holds.
            pairs: "reference" compares every level with the first, "all" each with each.
            by: A column, or several, within whose cells to compare.
            measure: "difference", "ratio", or "odds_ratio" of the averaged probabilities.
            kind: As in `means`.
            groups: As in `means`.
            prob: As in `means`.
            data: As in `means`.
            num_draws: As in `means`.
            seed: As in `means`.

        Returns:
            A frame with a line for every pair and cell: mean, sd and interval.

        Example:
            >>> import natvi
            >>> fit = natvi.glm("y ~ width + C(color)", natvi.data.load_crabs(), family="bernoulli").fit()
            >>> fit.compare("width")["contrast"].tolist()
            ['(width + 1) - width']
        """
        setting = _setting(kind, groups, data, num_draws, seed)
        model = ask(self.model, AnswersQuestions)
        return model.compare(variable, levels, pairs, by, measure, check_probability(prob), setting)

    def slopes(
        self,
        variable: str,
        *,
        by: Any = None,
        kind: str = "response",
        groups: str = "known",
        prob: float = 0.95,
        data: Any = None,
        num_draws: int = 2000,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Return the derivative of the expected response in a number, averaged over the data.

        Args:
            variable: A column of numbers that the model reads.
            by: A column, or several, within whose cells to average.
            kind: As in `means`.
            groups: As in `means`.
            prob: As in `means`.
            data: As in `means`.
            num_draws: As in `means`.
            seed: As in `means`.

        Example:
            >>> import natvi
            >>> fit = natvi.glm("weight ~ width", natvi.data.load_crabs()).fit()
            >>> slope, coefficient = fit.slopes("width")["mean"][0], fit.fixed_effects().loc["width", "mean"]
            >>> bool(abs(slope - coefficient) < 0.01)
            True
        """
        setting = _setting(kind, groups, data, num_draws, seed)
        return ask(self.model, AnswersQuestions).slopes(variable, by, check_probability(prob), setting)

    def odds_ratios(self, prob: float = 0.95, *, step: Mapping[str, float] | None = None) -> pd.DataFrame:
        """Return e^coefficient of a model with logit link: by what one unit multiplies the odds.

        The estimate is the posterior median; `compare(measure="odds_ratio")` averages over the data instead. The
        intercept is no ratio and is left out.

        Args:
            prob: The probability of the central intervals.
            step: Units other than one, by coefficient: `{"income": 10_000}` tells what ten thousand more do.

        Example:
            >>> import natvi
            >>> fit = natvi.glm("y ~ width", natvi.data.load_crabs(), family="bernoulli").fit()
            >>> fit.odds_ratios().columns.tolist()
            ['odds ratio', 'q2.5', 'q97.5']
            >>> one, two = fit.odds_ratios(), fit.odds_ratios(step={"width": 2})
            >>> bool(abs(two.loc["width", "odds ratio"] - one.loc["width", "odds ratio"] ** 2) < 1e-9)
            True
        """
        return ratio_table(ask(self.model, AnswersQuestions), ODDS, check_probability(prob), step)

    def rate_ratios(self, prob: float = 0.95, *, step: Mapping[str, float] | None = None) -> pd.DataFrame:
        """Return e^coefficient of a model with log link: by what one unit multiplies the expected response.

        With a cloglog link they are hazard ratios. The estimate is the posterior median; the intercept is left out.

        Args:
            prob: As in `odds_ratios`.
            step: As in `odds_ratios`.

        Example:
            >>> import natvi
            >>> fit = natvi.glm("sat ~ width", natvi.data.load_crabs(), family="poisson").fit()
            >>> bool(fit.rate_ratios().loc["width", "rate ratio"] > 1)
            True
        """
        return ratio_table(ask(self.model, AnswersQuestions), RATES, check_probability(prob), step)

    def covariance(self, correlation: bool = False) -> pd.DataFrame:
        """Return the posterior covariance matrix of the coefficients, or their correlations.

        Example:
            >>> import natvi
            >>> fit = natvi.glm("weight ~ width", natvi.data.load_crabs()).fit()
            >>> fit.covariance().shape
            (2, 2)
        """
        found = ask(self.model, AnswersQuestions).covariance()
        if not correlation:
            return found
        sds = np.sqrt(np.diag(found))
        return found / sds / sds[:, None]

    def r2(self, prob: float = 0.95, num_draws: int = 1000, seed: int = 0, data: Any = None) -> pd.DataFrame:
        """Return the share of the variance of the response that the model explains (Gelman and others, 2019).

        For each draw, the variance of the expected responses over itself plus the mean variance of the response about
        them. Models with random effects have two: with the effects of the groups (conditional) and without (marginal,
        over the same total).

        Example:
            >>> import natvi
            >>> fit = natvi.glm("weight ~ width", natvi.data.load_crabs()).fit()
            >>> round(float(fit.r2().loc["R2", "mean"]), 1)
            0.8
        """
        draws = ask(self.model, AnswersQuestions).explained(*check_draws(num_draws, seed), data)
        return _table_of_draws(draws, prob)

    def icc(self, prob: float = 0.95, num_draws: int = 2000, seed: int = 0, data: Any = None) -> pd.DataFrame:
        """Return intraclass correlations: the share of each factor in the variance that the fixed effects leave.

        The variance within levels is, on the scale of the linear predictor, sigma² of a Gaussian response, pi²/3 of the
        logit, and for counts log(1 + 1/mean) (Nakagawa, Johnson and Schielzeth 2017); with random slopes variances are
        averaged over the rows.

        Args:
            prob: The probability of the central intervals.
            num_draws: The number of draws.
            seed: The same seed gives the same answer.
            data: Rows other than the training data to average over.

        Returns:
            A line for every random term, and one for all together where there are several.

        Example:
            >>> import natvi
            >>> fit = natvi.glmm("Reaction ~ Days + (1 | Subject)", natvi.data.load_sleepstudy()).fit(method="gva")
            >>> round(float(fit.icc().loc["Subject", "mean"]), 1)
            0.6
        """
        draws = ask(self.model, SharesVariance).variance_shares(*check_draws(num_draws, seed), data)
        return _table_of_draws(draws, prob)

    def fitted(self) -> pd.Series:
        """Return the expected response of every training row, given its group's effects.

        Example:
            >>> import natvi
            >>> fit = natvi.glm("sat ~ width", natvi.data.load_crabs(), family="poisson").fit()
            >>> len(fit.fitted())
            173
        """
        return pd.Series(self.predicted_rows()["fitted"])

    def residuals(self, kind: str = "pearson", seed: int = 0, data: Any = None) -> pd.Series:
        """Return a residual for every row.

        Args:
            kind: "response", observed minus fitted; "pearson", divided by the sd of the response; "quantile", standard
                normal if the model is right: about one draw of the posterior, ties broken at random.
            seed: For quantile residuals.
            data: Rows other than the training data, their responses included.

        Example:
            >>> import natvi
            >>> fit = natvi.glm("weight ~ width", natvi.data.load_crabs()).fit()
            >>> bool(abs(fit.residuals("response").mean()) < 0.01)
            True
        """
        if kind not in RESIDUALS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, RESIDUALS))}, not {kind!r}.")
        return pd.Series(self.predicted_rows(seed, data)[kind], name=f"{kind} residual")

    def predicted_rows(self, seed: int = 0, data: Any = None) -> pd.DataFrame:
        """Return observed and fitted values with all residuals, a line for every row; of trials proportions.

        Example:
            >>> import natvi
            >>> fit = natvi.glm("weight ~ width", natvi.data.load_crabs()).fit()
            >>> fit.predicted_rows().columns.tolist()
            ['observed', 'fitted', 'response', 'pearson', 'quantile']
        """
        return ask(self.model, AnswersQuestions).residual_frame(check_seed(seed), data)

    def loo_groups(self, by: Any, num_draws: int = 2000, seed: int = 0, data: Any = None) -> Any:
        """Return cross-validation that leaves out all rows of a group at a time: how well new groups are predicted.

        Args:
            by: A column of the data, or a label for every row. For a mixed model its grouping factor, or a column that
                is constant within its groups; their random effects are integrated out.
            num_draws: The number of draws.
            seed: The same seed gives the same answer.
            data: Rows other than the training data, their responses included.

        Returns:
            As `loo`, with groups in place of rows.

        Example:
            >>> import natvi
            >>> fit = natvi.glm("sat ~ width", natvi.data.load_crabs(), family="poisson").fit()
            >>> len(fit.loo_groups("color").elpd_each)
            4
        """
        return ask(self.model, AnswersQuestions).leave_groups_out(by, *check_draws(num_draws, seed), data)

    def update(
        self, formula: str | None = None, *, data: Any = None, fit: dict[str, Any] | None = None, **changes: Any
    ):
        """Fit the model again with something changed.

        Args:
            formula: A new formula; a dot stands for what was there, as in `". ~ . + age"`.
            data: Another data frame.
            fit: Arguments of `fit`, e.g. `{"method": "gva"}`.
            **changes: Other arguments of `natvi.glm` and `natvi.glmm`: family, link, prior, weights, missing.

        Returns:
            The result of the new model; random effects may come or go.

        Example:
            >>> import natvi
            >>> fit = natvi.glm("y ~ width", natvi.data.load_crabs(), family="bernoulli").fit()
            >>> fit.update(". ~ . + weight").fixed_effects().index.tolist()
            ['Intercept', 'width', 'weight']
        """
        changes = changes if data is None else changes | {"data": data}
        return ask(self.model, AnswersQuestions).update(formula, changes).fit(**(fit or {}))

    def plot_means(self, variable: str, ax: Any = None, **how: Any) -> Any:
        """Plot what `means` returns; `how` are its arguments."""
        return plots.averages(self.means(variable, **how), f"expected, by {variable}", None, ax)

    def plot_compare(self, variable: str, ax: Any = None, **how: Any) -> Any:
        """Plot what `compare` returns; `how` are its arguments."""
        nothing = 0.0 if how.get("measure", "difference") == "difference" else 1.0
        return plots.averages(self.compare(variable, **how), f"comparison of {variable}", nothing, ax)

    def plot_slopes(self, variable: str, ax: Any = None, **how: Any) -> Any:
        """Plot what `slopes` returns; `how` are its arguments."""
        return plots.averages(self.slopes(variable, **how), f"average slope of {variable}", 0.0, ax)


def check_probability(prob: float) -> float:
    """Return the probability of an interval, or say what it should be."""
    if not 0 < prob < 1:
        raise ValueError(f"prob must lie between 0 and 1, e.g. 0.95 for a 95% interval; got {prob!r}.")
    return prob


def _table_of_draws(draws: dict[str, np.ndarray], prob: float) -> pd.DataFrame:
    tail = 0.5 - check_probability(prob) / 2
    lines = {
        name: [each.mean(), each.std(ddof=1), *np.quantile(each, [tail, 1 - tail])] for name, each in draws.items()
    }
    columns = ["mean", "sd", f"q{100 * tail:.12g}", f"q{100 - 100 * tail:.12g}"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=columns)


def _setting(kind: str, groups: str, data: Any, num_draws: int, seed: int) -> dict[str, Any]:
    num_draws, seed = check_draws(num_draws, seed)
    return {"kind": kind, "groups": groups, "data": data, "num_draws": num_draws, "seed": seed}
