"""Draw the pictures of tutorials and gallery: `python docs/hooks/draw_pictures.py`."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import natvi

FOLDER = Path(__file__).parents[1] / "tutorials" / "pictures"


def keep(name: str, axes: Any) -> None:
    figure = np.ravel(axes)[0].figure
    figure.savefig(FOLDER / f"{name}.png", dpi=110, metadata={"Software": None})


def photograph(fit: Any, name: str = "page") -> None:
    """Keep what a browser shows of the page about a fit when it is opened; without Chromium the old picture stays."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        page = fit.report(Path(folder) / "page.html")
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1040,1110"]
        target = f"--screenshot={FOLDER / f'{name}.png'}"
        subprocess.run([browser, *options, f"--user-data-dir={folder}", target, page.as_uri()], check=True)


def main() -> None:
    seizures, crabs = natvi.data.load_epilepsy(), natvi.data.load_crabs()
    high = (seizures["base"] > seizures["base"].median()).map({True: "above", False: "below"})
    fit = natvi.glmm("y ~ base*trt + age + visit + (1 | subject)", seizures, family="poisson").fit()
    photograph(fit)
    wider = fit.update(family="negative_binomial", fit={"method": "gva"})
    keep("seizures-compare", wider.plot_compare("trt", by="baseline", data=seizures.assign(baseline=high)))
    keep("gallery-forest", fit.plot_fixed_effects())
    keep("gallery-effects", fit.plot_random_effects())
    keep("gallery-predictive", fit.plot_predictive())
    crab = natvi.glm("y ~ width + C(color)", crabs, family="bernoulli").fit()
    keep("crabs-width", crab.plot_means("width", at=[22, 24, 26, 28, 30]))
    keep("gallery-residuals", crab.plot_residuals())
    sleep = natvi.glmm("Reaction ~ Days + (Days | Subject)", natvi.data.load_sleepstudy()).fit()
    keep("gallery-densities", sleep.plot_posterior(list(sleep.variance_components().index)))


if __name__ == "__main__":
    main()
