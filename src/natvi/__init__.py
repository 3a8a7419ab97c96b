"""natvi: full Gaussian posteriors for the price of a point estimate."""

from importlib import metadata

from natvi import data as data
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
