"""A sentence for every outcome that says what to do."""

from natvi.run import Outcome

ADVICE = {
    Outcome.CONVERGED: "The bound stopped rising: this is its maximum to working accuracy.",
    Outcome.MAX_STEPS: (
        "The step limit came first. Go on with fit(state=result.state), or allow more: max_steps, of nets epochs."
    ),
    Outcome.STOPPED_EARLY: (
        "The validation log-likelihood no longer rose, so the fit stopped early and kept its best point."
    ),
    Outcome.STALLED: (
        "No step raised the bound any more although the gradient is not zero. Look for collinear columns or columns of "
        "very different scale (standardising them usually helps), and for walls and kinks in a log-density of your own."
    ),
    Outcome.INTERRUPTED: "Interrupted; this is the best point reached. Go on with fit(state=result.state).",
    Outcome.NONFINITE: (
        "The bound was not finite, at the start or in most of the last steps. Look for extreme values in the data, "
        "such as counts or covariates in the millions, and rescale them; of a noisy optimizer try a smaller step_size."
    ),
    Outcome.SINGULAR_FACTOR: "The precision lost its rank. Remove redundant columns or give a tighter prior.",
    Outcome.UNBOUNDED: "The bound rises without end: the posterior is improper. Give a proper prior.",
}
