"""What a visitor waits for before the first line of work: each door imports what it needs and no more."""

import subprocess
import sys

import pytest

import natvi

SELDOM = (
    "matplotlib",
    "arviz_base",
    "arviz_stats",
    "arviz",
    "xarray",
    "optax",
    "narwhals",
    "rich",
    "sklearn",
    "polars",
)
SELDOM_OF_SCIPY = (
    "scipy.special",
    "scipy.sparse",
    "scipy.linalg",
    "scipy.stats",
    "scipy.optimize",
    "scipy.interpolate",
    "scipy.sparse.linalg",
    "scipy.spatial",
)
COMMAND_LINE = tuple(name for name in SELDOM if name != "rich")


def loaded(code: str, names: tuple[str, ...]) -> list[str]:
    """Return which of some modules a fresh process has loaded after some code."""
    script = f"{code}\nimport sys\nprint(*[name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.split()


def test_the_package_alone_imports_nothing():
    assert loaded("import natvi", ("jax", "numpy", "pandas", "formulae", "equinox")) == []


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import natvi; natvi.glmm; natvi.glm; natvi.data.load_crabs()", SELDOM + SELDOM_OF_SCIPY),
        ("import natvi; natvi.fit", SELDOM + SELDOM_OF_SCIPY),
        ("import natvi.cli", COMMAND_LINE + SELDOM_OF_SCIPY),
    ],
)
def test_doors_do_not_import_what_few_visitors_need(code, names):
    assert loaded(code, names) == []


def test_every_public_name_is_found_and_listed():
    assert [name for name in natvi.__all__ if getattr(natvi, name) is None] == []
    assert set(natvi.__all__) <= set(dir(natvi))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        natvi.nothing  # noqa: B018


def test_splines_come_with_the_formula_that_has_one():
    code = (
        "import natvi, numpy as np\n"
        "x = np.linspace(0.0, 1.0, 40)\n"
        "model = natvi.glm('y ~ bs(x, df=5)', {'x': x, 'y': x**2})\n"
        "assert model.rows.X.shape == (40, 6)\n"
        "import scipy.interpolate\n"
        "assert scipy.interpolate.interp1d([0.0, 1.0], [0.0, 2.0])(0.5) == 1.0"
    )
    assert loaded(code, ("scipy.interpolate",)) == ["scipy.interpolate"]
