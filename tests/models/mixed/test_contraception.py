"""Random slopes of a binary response, by the marginal method through the public door, beside kept figures of NUTS."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natvi

FORMULA = "use ~ age + urban + livch + (1 + urban | district)"
FIXED = ["Intercept", "age", "urban[Y]", "livch[1]", "livch[2]", "livch[3+]"]
COMPONENTS = ["sd(Intercept|district)", "sd(urban[Y]|district)", "corr(Intercept,urban[Y]|district)"]
FIGURES = Path(__file__).parents[3] / "experiments" / "results" / "slopes.json"


def nuts(parameter: str, metric: str) -> float:
    """Return a figure of the long run of NUTS."""
    cells: list[dict[str, Any]] = json.loads(FIGURES.read_text("utf-8"))["cells"]
    wanted = {"row": f"contraception: {parameter}", "column": "NUTS", "metric": metric}
    (found,) = [cell["ours"] for cell in cells if wanted.items() <= cell.items()]
    return found


@pytest.mark.slow
def test_slopes_of_a_binary_response() -> None:
    model = natvi.glmm(FORMULA, natvi.data.load_contraception(), family="bernoulli", prior="paper")
    result = model.fit(method="marginal")
    assert result.outcome == "converged" and result.method == "marginal"
    fixed, components = result.fixed_effects(), result.variance_components()
    assert list(fixed.index) == FIXED and list(components.index) == COMPONENTS
    assert list(components.columns) == ["mean", "sd", "q2.5", "q97.5"] and np.all(np.isfinite(components))
    for table, allowed in ((fixed, 0.1), (components, 0.2)):
        for name, row in table.iterrows():
            mean, sd = (nuts(str(name), metric) for metric in ("mean", "sd"))
            assert abs(row["mean"] - mean) < allowed * sd, name
            assert row["sd"] == pytest.approx(sd, rel=0.15), name
    assert components.loc[COMPONENTS[2], "q2.5"] > -1 and components.loc[COMPONENTS[2], "q97.5"] < 1
    text = repr(result)
    assert all(name in text for name in (*FIXED, *COMPONENTS))
