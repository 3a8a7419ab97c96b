"""The pictures of the tutorial on which inputs matter: relevance and intervals on the protein data.

python -m experiments.protein_pictures
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.report import _save_picture
from natvi import DeepGLMRegressor, data

PICTURES = Path(__file__).parents[1] / "docs" / "tutorials" / "pictures"
INK, GREY = "#1f4e79", "#9db8d2"
NOISE = 3  # columns of pure noise


def main() -> None:
    """Fit the protein data with columns of noise among its inputs, write two pictures and say the figures."""
    frame = data.load_protein()
    rng = np.random.default_rng(0)
    for k in range(1, NOISE + 1):
        frame[f"noise {k}"] = rng.normal(size=len(frame))
    test = rng.random(len(frame)) < 0.2
    X, y = frame.drop(columns="RMSD"), frame["RMSD"]
    model = DeepGLMRegressor(epochs=60, batch_size=512).fit(X[~test], y[~test])
    PICTURES.mkdir(parents=True, exist_ok=True)
    ax = model.plot_relevance()
    _save_picture(ax.figure, PICTURES / "protein-relevance.png")
    few = np.flatnonzero(test)[:2000]
    intervals, seen = model.predict_interval(X.iloc[few]), y.iloc[few].to_numpy()
    inside = (intervals["q2.5"] < seen) & (seen < intervals["q97.5"])
    figure = Figure(figsize=(6.5, 3.6), layout="constrained")
    ax = figure.subplots()
    order = np.argsort(intervals["mean"].to_numpy())[::10]
    at = np.arange(len(order))
    ax.vlines(at, intervals["q2.5"].iloc[order], intervals["q97.5"].iloc[order], color=GREY, linewidth=2)
    ax.plot(at, seen[order], ".", color=INK, markersize=4)
    ax.set(xlabel="test proteins, ordered by prediction", ylabel="RMSD")
    _save_picture(figure, PICTURES / "protein-intervals.png")
    print(model.relevance_.round(3).to_string())
    print(f"test log-likelihood {model.log_score(X.iloc[few], seen):.4f}, 95% intervals hold {inside.mean():.3f}")


if __name__ == "__main__":
    main()
