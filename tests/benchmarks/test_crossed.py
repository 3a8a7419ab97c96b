"""The problems of the benchmark of crossed models."""

from benchmarks.crossed_problems import GROWTH, PROBLEMS, growing, subjects_and_items

import natvi
from benchmarks import crossed
from natvi.formula.design import parse_formula


def test_simulated_problems_have_the_sizes_they_are_named_for():
    answers = subjects_and_items()
    assert len(answers) == 7584 and answers["subject"].nunique() == 316 and answers["item"].nunique() == 24
    model = natvi.glmm(GROWTH, growing(2000), family="bernoulli")
    assert model.design.X.shape == (2000, 5) and len(model.design.terms) == 2


def test_every_problem_can_be_asked_for_by_name():
    assert set(PROBLEMS) < set(crossed.NAMES) and {"growth", "answers"} < set(crossed.NAMES)
    for name, problem in PROBLEMS.items():
        assert parse_formula(problem.formula).terms, name
