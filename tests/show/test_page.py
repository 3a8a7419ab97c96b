"""The page about a fit, in words and in a real browser: nothing wider than a phone, nothing fetched, no errors."""

import html
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.result import page as page_of
from natvi.show import glm_plots, plots, report

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"ward": np.repeat([f"ward {k:02d}" for k in range(12)], 10), "dose": rng.normal(size=120)})
    long = "how many days the patient had been in hospital before"
    data[long] = rng.normal(3000.0, 500.0, 120)
    effects = rng.normal(scale=0.5, size=12)[np.arange(120) // 10]
    data["falls"] = rng.poisson(np.exp(0.5 + effects + 0.4 * data["dose"]))
    fit = natvi.glmm(f"falls ~ dose + `{long}` + (1 + dose | ward)", data, family="poisson").fit(method="gva")
    return fit.report(tmp_path_factory.mktemp("page") / "page.html")


def test_verdicts_come_first_and_diagnostics_are_folded(page: Path) -> None:
    text = page.read_text("utf-8")
    places = [
        text.index(words)
        for words in (
            "Approximation of the posterior",
            "Model against the data",
            "falls is a count with a Poisson distribution",
            "Normal(0, Σ)",
            "What the prior assumes",
            "As rate ratios",
            "Random effects</h2>",
            "What moves the answer",
            "<summary><h2>Numbers behind the verdicts",
            "<summary><h2>Cite and reproduce",
        )
    ]
    assert places == sorted(places)
    assert page.stat().st_size < 2_000_000 and not re.search("https?:|<script|<link|@import", text)
    assert "ward 07" in text  # few groups are named
    assert "natvi.glmm(" in text and text.count("<h1>") == 1
    ids = re.findall(r'id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert not re.findall(r"#(?:1f4e79|9db8d2)\b", text.split("</style>")[1])  # colours are those of the page


@needs_browser
@pytest.mark.parametrize("width", [400, 1200])
def test_no_sideways_scrolling_and_no_errors(page: Path, tmp_path: Path, width: int) -> None:
    text = page.read_text("utf-8").replace("<details", "<details open")
    inner = html.escape(text, quote=True)  # a frame of that width: a window has a least width of its own
    probe = "document.title = 'WIDTH' + document.querySelector('iframe').contentDocument.documentElement.scrollWidth"
    frame = f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{inner}"></iframe>'
    copy = tmp_path / "page.html"
    copy.write_text(f'<!doctype html><body onload="{probe}">{frame}</body>', "utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    seen = subprocess.run(
        [*command, "--window-size=1300,900", f"--user-data-dir={tmp_path / 'profile'}", copy.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r"<title>WIDTH(\d+)", seen.stdout)
    assert found is not None and int(found[1]) <= width
    assert "CONSOLE" not in seen.stderr


def test_an_intercept_does_not_flatten_the_forest() -> None:
    ends = {"low": [900.0, -1.0, 0.5, -0.0004], "high": [1100.0, 2.0, 1.5, 0.001]}
    table = pd.DataFrame({"mean": 0.0, "sd": 1.0, **ends}, index=["Intercept", "a", "b", "income"])
    axes = plots.forest(table)
    names = [[tick.get_text() for tick in ax.get_yticklabels()] for ax in axes]
    assert names == [["a", "b"], ["income"]]


def test_densities_stay_where_parameters_are() -> None:
    rng = np.random.default_rng(0)
    sds, correlations = np.abs(rng.normal(size=4000)), np.tanh(rng.normal(1.5, 1.0, 4000))
    grid, density = glm_plots.smooth(sds, bounds=(0.0, np.inf))
    assert grid[0] >= 0 and density[0] == pytest.approx(np.sqrt(2 / np.pi), abs=0.1)  # three standard errors
    assert np.sum(density) * (grid[1] - grid[0]) == pytest.approx(1.0, abs=0.02)
    grid, _ = glm_plots.smooth(correlations, bounds=(-1.0, 1.0))
    assert grid[0] >= -1 and grid[-1] <= 1


def test_the_trace_reaches_the_last_iteration() -> None:
    ax = plots.trace(np.array([-10.0, -3.0, -2.5, -2.4999]))
    assert max(line.get_xdata()[-1] for line in ax.lines) == 4


def test_a_noisy_trace_shows_the_bound_itself() -> None:
    elbo = np.concatenate([[-1e6, -1e4], -100 + np.random.default_rng(0).normal(size=60)])
    ax = plots.trace(elbo)
    assert ax.get_yscale() == "linear" and ax.get_ylim()[0] > -120  # the rise from far below does not flatten the rest
    assert ax.lines[0].get_xdata()[-1] == len(elbo)


def test_long_formulas_and_names_stay_readable() -> None:
    long = "y ~ " + " + ".join(f"measure_{k}" for k in range(60))
    assert len(shortened := page_of._shortened(f"{long}, poisson response, log link")) < 200
    assert shortened.startswith("y ~ measure_0 + ") and shortened.endswith(" …, poisson response, log link")
    assert "folded" in report.table(pd.DataFrame({"a": [1], "b": [2]}, index=["x" * 50]))
    assert "folded" not in report.table(pd.DataFrame({"a": [1], "b": [2]}, index=["x"]))


def test_names_that_share_a_density_stay_together() -> None:
    text = "Intercept N(0, 1²) at average covariates, x N(0, 2²), sd(1|a), sd(1|b) half-t(3, 2.5), 95% of it below 8"
    assert page_of._split(text)[1:] == ["x N(0, 2²)", "sd(1|a), sd(1|b) half-t(3, 2.5), 95% of it below 8"]


def test_effects_of_many_named_groups_stand_in_two_columns() -> None:
    names = [f"ward {k}" for k in range(31)]
    ends = {
        "mean": np.linspace(-1, 1, 31),
        "sd": 0.1,
        "low": np.linspace(-1.2, 0.8, 31),
        "high": np.linspace(-0.8, 1.2, 31),
    }
    effects = pd.DataFrame({"ward": names, "effect": "Intercept", **ends})
    left, right = plots.labelled_effects(effects, in_two=True)
    assert len(left.get_yticks()) == 16 and len(right.get_yticks()) == 15 and left.get_xlim() == right.get_xlim()
    assert len(plots.labelled_effects(effects)) == 1
