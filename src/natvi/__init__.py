"""natvi: full Gaussian posteriors for the price of a point estimate."""

from importlib import metadata

from natvi import data as data
from natvi.models.glm import GlmModel as GlmModel
from natvi.models.glm import glm as glm
from natvi.models.glm import glm_arrays as glm_arrays
from natvi.models.glm_batches import glm_batches as glm_batches
from natvi.models.glmm import MixedModel as MixedModel
from natvi.models.glmm import glmm as glmm
from natvi.models.loading import load as load
from natvi.result import Result as Result

__version__ = metadata.version("natvi")
