"""natvi: full Gaussian posteriors for the price of a point estimate."""

from importlib import import_module, metadata
from typing import Any

from natvi import data as data
from natvi.models.deep.bnn import bnn as bnn
from natvi.models.density.door import fit as fit
from natvi.models.linear.batches.door import glm_batches as glm_batches
from natvi.models.linear.door import GlmModel as GlmModel
from natvi.models.linear.door import glm as glm
from natvi.models.linear.door import glm_arrays as glm_arrays
from natvi.models.loading import load as load
from natvi.models.mixed.door import MixedModel as MixedModel
from natvi.models.mixed.door import glmm as glmm
from natvi.result import Result as Result

__version__ = metadata.version("natvi")

_LATER = {"DeepGLMRegressor": "scikit_learn", "DeepGLMClassifier": "scikit_learn"}  # their libraries are extras


def __getattr__(name: str) -> Any:
    """Import what needs an optional library when it is asked for."""
    if name in _LATER:
        return getattr(import_module(f"natvi.bridges.{_LATER[name]}"), name)
    raise AttributeError(f"module 'natvi' has no attribute {name!r}")
