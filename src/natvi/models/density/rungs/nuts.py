"""The last rung: NUTS, started from draws of the fit and with the fit as its metric."""

from dataclasses import replace

import numpy as np

from natvi.judge.trust import CARE, GOOD, Trust
from natvi.models.density.rungs.place import Place
from natvi.models.density.verdict import Answer, local_evidence

CHAINS, WARM_UP, DRAWS = 4, 500, 1000
MOST_RHAT, LEAST_EFFECTIVE, MOST_DIVERGENT = 1.01, 400.0, 0.001
HARDER = 0.95  # the acceptance that is aimed at where trajectories diverged


def sample_nuts(place: Place) -> Answer:
    """Draw by NUTS in the whitened coordinates of the fit, where every number has about the same scale.

    Where trajectories diverge, chains run once more with shorter steps.
    """
    from natvi.reference.nuts import nuts

    d = place.dimension
    for accept in (0.8, HARDER):
        found = nuts(
            place.log_p,
            np.zeros(d),
            covariance=np.ones(d),
            num_chains=CHAINS,
            num_warmup=WARM_UP,
            num_draws=DRAWS,
            target_accept=accept,
            seed=place.seed,
            progress=place.progress,
        )
        share = found.num_divergent / (CHAINS * DRAWS)
        if share <= MOST_DIVERGENT:
            break
    read = place.read(found.flat())
    varies = np.ptp(read, axis=0) > 0
    # what the user reads is judged, not the coordinates in which the chains ran
    judged = replace(found, draws=read[:, varies].reshape(CHAINS, DRAWS, -1))
    rhat, effective = float(np.max(judged.rhat, initial=1.0)), float(np.min(judged.ess, initial=CHAINS * DRAWS))
    numbers = (
        ("largest R-hat", rhat),
        ("least effective draws", effective),
        ("share of divergent transitions", share),
    )
    text = (
        f"{CHAINS} chains of NUTS with {DRAWS:,} draws each: R-hat at most {rhat:.3f}, at least {effective:,.0f} "
        f"effective draws, {found.num_divergent} divergent transitions"
    )
    sure = rhat < MOST_RHAT and effective > LEAST_EFFECTIVE and share <= MOST_DIVERGENT
    if not sure:
        text += ". Reparametrise the model, or narrow its priors"
    concerns = (Trust(GOOD if sure else CARE, (text,), numbers), *local_evidence(place.rivals))
    return Answer("nuts", place.gaussian, read, concerns, effective)
