"""natvi: full Gaussian posteriors for the price of a point estimate.

Each name is imported when it is first asked for: whoever fits a mixed model does not wait for the nets.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from natvi.collector import collector_at_rest

if TYPE_CHECKING:
    from natvi import data as data
    from natvi import hosts as hosts
    from natvi import recipes as recipes
    from natvi.bridges.blackjax import vi_algorithm as vi_algorithm
    from natvi.bridges.numpyro import from_numpyro as from_numpyro
    from natvi.bridges.pymc import from_pymc as from_pymc
    from natvi.bridges.scikit_learn import DeepGLMClassifier as DeepGLMClassifier
    from natvi.bridges.scikit_learn import DeepGLMRegressor as DeepGLMRegressor
    from natvi.models.deep.bnn import bnn as bnn
    from natvi.models.density.door import fit as fit
    from natvi.models.density.space import bijectors as bijectors
    from natvi.models.linear.batches.door import glm_batches as glm_batches
    from natvi.models.linear.door import GlmModel as GlmModel
    from natvi.models.linear.door import glm as glm
    from natvi.models.linear.door import glm_arrays as glm_arrays
    from natvi.models.loading import load as load
    from natvi.models.mixed.door import MixedModel as MixedModel
    from natvi.models.mixed.door import glmm as glmm
    from natvi.result import Result as Result
    from natvi.result.comparison import compare as compare

    __version__: str

ROOMS = ("data", "hosts", "recipes")
NAMES = {
    "natvi.bridges.blackjax": ("vi_algorithm",),
    "natvi.bridges.numpyro": ("from_numpyro",),
    "natvi.bridges.pymc": ("from_pymc",),
    "natvi.bridges.scikit_learn": ("DeepGLMClassifier", "DeepGLMRegressor"),
    "natvi.models.deep.bnn": ("bnn",),
    "natvi.models.density.door": ("fit",),
    "natvi.models.density.space": ("bijectors",),
    "natvi.models.linear.batches.door": ("glm_batches",),
    "natvi.models.linear.door": ("GlmModel", "glm", "glm_arrays"),
    "natvi.models.loading": ("load",),
    "natvi.models.mixed.door": ("MixedModel", "glmm"),
    "natvi.result": ("Result",),
    "natvi.result.comparison": ("compare",),
}
_HOME = {name: module for module, names in NAMES.items() for name in names}

__all__ = ["__version__", *ROOMS, *sorted(_HOME)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, and keep it."""
    if name == "__version__":
        from importlib import metadata  # takes half as long as all else here

        value = metadata.version("natvi")
    elif name in ROOMS:
        with collector_at_rest():
            return import_module(f"natvi.{name}")  # the import itself keeps it
    elif name in _HOME:
        with collector_at_rest():
            value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'natvi' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, those not imported yet among them."""
    return list(__all__)
