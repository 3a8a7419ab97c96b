"""Fits that the files of this folder read and none of them changes, made once."""

import pytest

import natvi
from natvi.data import load_epilepsy, load_sleepstudy


@pytest.fixture(scope="session")
def counts() -> natvi.Result:
    formula = "y ~ base*trt + age + visit + (1 | subject)"
    return natvi.glmm(formula, load_epilepsy(), family="poisson").fit(method="gva")


@pytest.fixture(scope="session")
def sleep() -> natvi.Result:
    return natvi.glmm("Reaction ~ Days + (Days | Subject)", load_sleepstudy()).fit(method="gva")
