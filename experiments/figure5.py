"""Figure 5, nonzero entries of C', G and H = C'G for a block-diagonal covariance with K = 4 blocks."""

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle

from experiments import drawing
from experiments.report import Report
from natvi.linalg import BlockFactor

SIZES = (3, 5, 4, 2)
TITLES = ("C′", "Ḡ", "H = C′Ḡ", "half(H)", "C half(H)")


def matrices(seed: int) -> dict[str, np.ndarray]:
    """Return the five matrices, dense, from a random block factor and a first-order gradient of Theorem 2."""
    rng = np.random.default_rng(seed)
    d = sum(SIZES)
    a, b, g, z = (jnp.asarray(rng.uniform(0.5, 1.5, d) * rng.choice([-1, 1], d)) for _ in range(4))

    @jax.jit
    def products() -> tuple[jax.Array, ...]:
        pattern = BlockFactor.identity(SIZES)
        C, G = pattern.outer(a, b), pattern.outer(g, z)
        half = C.half_transposed_product(G)
        return dense(C).T, dense(G), dense(C).T @ dense(G), dense(half), dense(C.multiply(half))

    return {title: np.asarray(matrix) for title, matrix in zip(TITLES, products(), strict=True)}


def dense(factor: BlockFactor) -> jax.Array:
    """Return a block factor as a matrix, by its product with the unit vectors."""
    return jax.vmap(factor.product, out_axes=1)(jnp.eye(factor.layout.dimension))


def run(report: Report) -> None:
    """Count and draw the nonzero entries; `--quick` changes nothing."""
    found = matrices(report.seed)
    report.settings |= {"sizes": list(SIZES)}
    for title, matrix in found.items():
        report.cell("nonzero entries", title, "value", int(np.count_nonzero(matrix)))
    H, pattern = found["H = C′Ḡ"], found["C′"].T != 0
    half = np.tril(H) - 0.5 * np.diag(np.diag(H))
    report.cell("the library's half(H) is that of C′Ḡ", "largest error", "value", np.abs(half - found["half(H)"]).max())
    for title in ("Ḡ", "half(H)", "C half(H)"):
        report.cell("same pattern as C", title, "value", bool(np.array_equal(found[title] != 0, pattern)), True)
    report.note(
        "Drawn from a BlockFactor of the library with random entries; half(H): lower triangle, diagonal halved."
    )
    report.figure, axes = drawing.new_figure(1, 5, 12.5, 2.95)
    for ax, (title, matrix) in zip(axes, found.items(), strict=True):
        _draw(ax, title, matrix)


def _draw(ax, title: str, matrix: np.ndarray) -> None:
    d = len(matrix)
    ax.imshow(matrix != 0, cmap=ListedColormap(["white", "#4f81b0"]), vmin=0, vmax=1, interpolation="none")
    ax.hlines(np.arange(1, d) - 0.5, -0.5, d - 0.5, color="0.93", linewidth=0.6)
    ax.vlines(np.arange(1, d) - 0.5, -0.5, d - 0.5, color="0.93", linewidth=0.6)
    start = -0.5
    for size in SIZES:
        ax.add_patch(Rectangle((start, start), size, size, fill=False, edgecolor=drawing.INK, linewidth=1.2, zorder=3))
        start += size
    ax.set(xticks=[], yticks=[], xlim=(-0.7, d - 0.3), ylim=(d - 0.3, -0.7))
    ax.spines[:].set(visible=True, color="0.6", linewidth=0.8)
    ax.set_title(title, fontsize=11, color=drawing.INK)
