"""The default prior: weakly informative, scaled to the data, the same in whatever units they come.

With s the spread of the response (`response_scale`) and d the size of a centred column (`standard`),

    intercept N(b0, (2.5 s)^2) where the numbers are at their means,   cells of a factor N(b0, (5 s)^2),
    slopes N(0, (2.5 s / d)^2),   sds half-t(3, 2.5 s / d) with LKJ(1) correlations,   sigma half-t(3, 2.5 s),
    1 / sqrt(phi) half-t(3, 1) for the dispersion phi of a negative binomial or the shape of a gamma response.

In the coordinates of the fit, beta' = diag(d) K^-1 beta, all of these are independent. A coefficient whose prior the
user sets is a coordinate of its own, d_j beta_j. Sds of random effects hold where the numbers are at their means; where
the user sets one, all hold at the user's zero, as they do without an intercept among the random effects and for `||`.
"""

from typing import NamedTuple

import numpy as np

from natvi.families.table import Family
from natvi.formula.margins import plain_products
from natvi.models.regression.family.extras import default_density
from natvi.models.regression.prior.data import PriorData
from natvi.models.regression.prior.response_scale import ResponseScale
from natvi.models.regression.prior.scale_settings import ScaleNames, ScaleSettings
from natvi.models.regression.prior.settings import PriorSettings
from natvi.models.regression.prior.standard import CELL, INTERCEPT, SLOPE, StandardColumns, standard_columns
from natvi.target.priors.scale_density import ScaleDensity

WIDTH, CELL_WIDTH, DEGREES = 2.5, 5.0, 3.0


class FixedPrior(NamedTuple):
    """Independent normals on beta', and the same in the user's units.

    Attributes:
        mean: Of beta'.
        sd: Of beta'.
        map: M with beta = M beta', or None for the identity.
        user: Mean and sd of each coefficient's own normal, in the user's units.
        roles: What each column is.
        set_by_user: Which coefficients have a prior of their own.
        centred: Whether any column is centred.
    """

    mean: np.ndarray
    sd: np.ndarray
    map: np.ndarray | None
    user: np.ndarray
    roles: tuple[str, ...]
    set_by_user: tuple[bool, ...]
    centred: bool


def default_fixed(
    columns: StandardColumns, response: ResponseScale, settings: PriorSettings, names: tuple[str, ...]
) -> FixedPrior:
    """Return the normals of the coefficients, with those that the user has set in their place."""
    d, p = columns.sizes, len(names)
    user = np.zeros((2, p))
    for at, role in enumerate(columns.roles):
        # a cell is an intercept for its rows; its size, half a range, is no unit of it
        width = {INTERCEPT: WIDTH / d[at], CELL: CELL_WIDTH, SLOPE: WIDTH / d[at]}[role]
        user[1, at] = width * response.spread
        if role != SLOPE:
            user[0, at] = response.centre * (1.0 if role == CELL else columns.constant[at])
    given = [settings.every is not None or name in settings.single for name in names]
    for at, name in enumerate(names):
        if given[at]:
            user[:, at] = (0.0, settings.every) if settings.every is not None else settings.single[name]
    if all(given) or not p:
        return FixedPrior(user[0], user[1], None, user, columns.roles, tuple(given), False)
    M = columns.map
    if any(given):
        inside = np.linalg.inv(M)  # beta' = A beta
        inside[given] = np.diag(d)[given]
        M = np.linalg.inv(inside)
    return FixedPrior(user[0] * d, user[1] * d, M, user, columns.roles, tuple(given), columns.centring is not None)


class ScaleDefaults(NamedTuple):
    """Densities of the sds, LKJ's eta, the dispersion's density, and the coordinates of the random effects.

    Attributes:
        densities: Of each sd, in the coordinates of the fit.
        user: The same in the user's units.
        eta: Of the correlations.
        dispersions: Of exp(power times the coordinate), for every dispersion.
        powers: These powers.
        map: M_z, or None for the identity.
        centred: Whether any column of Z is centred.
    """

    densities: tuple[ScaleDensity, ...]
    user: tuple[ScaleDensity, ...]
    eta: float
    dispersions: tuple[ScaleDensity, ...]
    powers: tuple[float, ...]
    map: np.ndarray | None
    centred: bool


def default_scales(
    settings: ScaleSettings, family: Family, data: PriorData, names: ScaleNames, response: ResponseScale
) -> ScaleDefaults:
    """Return the priors of sds, correlations and dispersion, with those that the user has set in their place."""
    r, scale = data.Z.shape[1], WIDTH * response.spread
    asked = bool(settings.sds) or settings.lkj is not None
    centred = names.correlated and not asked
    if data.random_standard is None:
        columns = standard_columns(data.Z, data.random or plain_products(r), data.weights, centred=centred)
    else:
        columns = data.random_standard(centred)
    sizes = np.where([role == CELL for role in columns.roles], 1.0, columns.sizes)
    user = tuple(settings.sds.get(k, _half_t(scale / sizes[k])) for k in range(r))
    inside, matrix = user, None
    if not asked and r:
        K = np.eye(r) if columns.centring is None else columns.centring
        matrix = None if columns.centring is None and np.all(sizes == 1.0) else K / sizes
        inside = (_half_t(scale),) * r
    asked = settings.dispersions
    own = WIDTH * (response.spread if response.unit is None else response.unit)
    dispersions = tuple(asked.get(k, default_density(extra, own)) for k, extra in enumerate(family.extras))
    powers = tuple(1.0 if k in asked else extra.power for k, extra in enumerate(family.extras))
    eta = 1.0 if settings.lkj is None else settings.lkj
    return ScaleDefaults(inside, user, eta, dispersions, powers, matrix, columns.centring is not None)


def _half_t(scale: float) -> ScaleDensity:
    return ScaleDensity("half_t", (DEGREES, float(scale)))
