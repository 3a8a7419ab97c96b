"""The pictures of the tutorial on what a net does not know: rotated digits, and clothes shown to a net of digits.

    python -m experiments.net_pictures

Takes the IVON net of Table 9 from its checkpoint, or trains it first.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.ndimage import rotate

from experiments.memory import folder
from experiments.net_runs import LABEL, ROWS, SETS, images, model_of, run, run_name
from experiments.report import _save_picture
from natvi import data
from natvi.models.deep.bnn_fit import BnnFit
from natvi.models.deep.training import Training, train
from natvi.x64 import float32

PICTURES = Path(__file__).parents[1] / "docs" / "tutorials" / "pictures"
ANGLES = np.arange(0, 181, 15)
DRAWS, SHOWN = 50, 2_000
INK, RED, GREY = "#1f4e79", "#b3541e", "#9db8d2"


def trained_net(row_name: str = "IVON", name: str = "mnist") -> BnnFit:
    """Return the net of a row of Table 9."""
    run(name, row_name)
    row, (train_images, _) = ROWS[row_name], images(name)
    rows = {"x": train_images.X, "y": train_images.y.astype(np.int32)}
    training = Training(row.optimizer, row.grid[0], row.schedule, epochs=SETS[name].epochs, seed=row.seed)
    model = model_of(name, row.seed)
    with float32():
        target, start = model.prepare(rows, training)
        path = folder() / f"{LABEL}-{run_name(name, row_name)}.checkpoint"
        gaussian = train(target, start, rows, training, watch=lambda _: 0.0, checkpoint=path).gaussian
    sds = np.abs(np.asarray(gaussian.factor.values))
    shape = rows["x"].shape[1:]
    return BnnFit(model.net, np.asarray(gaussian.mean), sds, 10, shape, len(rows["y"]), 10.0, np.empty(0))


def rotations(net: BnnFit) -> Figure:
    """Draw one digit as it turns: its class probabilities, and how much is not known."""
    _, test = images("mnist")
    digit = test.X[int(np.flatnonzero(test.y == 4)[0]), :, :, 0]
    turned = np.stack([rotate(digit, angle, reshape=False, order=1, mode="constant") for angle in ANGLES])[..., None]
    turned = np.clip(turned, 0, 255).astype(np.uint8)
    table = net.probabilities(turned, DRAWS)
    parts = net.uncertainty(turned, DRAWS)
    figure = Figure(figsize=(8.5, 5.2), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 3.2))
    for ax, image in zip(top.subplots(1, len(ANGLES)), turned, strict=True):
        ax.imshow(image[..., 0], cmap="gray_r")
        ax.axis("off")
    left, right = bottom.subplots(1, 2)
    for k in np.flatnonzero(table.max(axis=0) > 0.15):
        left.plot(ANGLES, table[:, k], marker="o", markersize=3, label=f"class {k}")
    left.legend(frameon=False, fontsize=8)
    left.set(xlabel="rotation, degrees", ylabel="predictive probability")
    right.fill_between(ANGLES, parts["noise"], parts["total"], color=GREY, label="weights disagree")
    right.fill_between(ANGLES, 0, parts["noise"], color="#e3e8ee", label="noise")
    right.plot(ANGLES, parts["total"], color=INK)
    right.set(xlabel="rotation, degrees", ylabel="entropy, nats", ylim=(0, None))
    right.legend(frameon=False, fontsize=8)
    return figure


def strangers(net: BnnFit) -> tuple[Figure, float, float]:
    """Draw scores of digits and of clothes; return how well the score and plain confidence tell them apart."""
    _, digits = images("mnist")
    _, clothes = data.load_fashion_mnist()
    both = np.concatenate([digits.X[:SHOWN], clothes.X[:SHOWN]])
    score = net.ood_score(both, DRAWS)
    confidence = 1 - net.probabilities(both, weights="mean").max(axis=1)
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    ax = figure.subplots()
    bins = np.linspace(0, np.log(10), 50)
    ax.hist(score[:SHOWN], bins, density=True, color=INK, alpha=0.8, label="digits (MNIST)")
    ax.hist(score[SHOWN:], bins, density=True, color=RED, alpha=0.6, label="clothes (Fashion-MNIST)")
    ax.set(xlabel="entropy of the predictive, nats", ylabel="density", yscale="log")
    ax.legend(frameon=False)
    return figure, area(score), area(confidence)


def area(score: np.ndarray) -> float:
    """Return the chance that a stranger scores higher than a digit."""
    ranks = np.argsort(np.argsort(score)) + 1
    return float((ranks[SHOWN:].sum() - SHOWN * (SHOWN + 1) / 2) / SHOWN**2)


def main() -> None:
    """Write both pictures and say the figures."""
    net = trained_net()
    PICTURES.mkdir(parents=True, exist_ok=True)
    _save_picture(rotations(net), PICTURES / "rotated-digit.png")
    figure, by_score, by_confidence = strangers(net)
    _save_picture(figure, PICTURES / "digits-and-clothes.png")
    print(f"AUC of the score {by_score:.3f}, of 1 - largest probability at the mean {by_confidence:.3f}")


if __name__ == "__main__":
    main()
