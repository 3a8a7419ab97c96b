"""The study of verdicts on crossed data: its data, its chains' coordinates, its counts. The study itself takes long."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiments.__main__ import built
from experiments.crossed_data import DESIGNS, PER_DESIGN, simulate
from experiments.crossed_outcomes import CrossedOutcome
from experiments.crossed_truth import log_density, place, posterior_of
from experiments.crossed_verdicts import rates, tell
from experiments.report import Report

import natvi
from natvi.x64 import float64
from strategies import quick_jit


def test_sixty_data_sets_of_four_families_share_cells_within_a_design():
    assert len(DESIGNS) * PER_DESIGN == 60 and len({design.family for design in DESIGNS}) == 4
    assert "crossed_verdicts" in built()
    for design in DESIGNS:
        first, second = simulate(design, 0, 1), simulate(design, 4, 2)
        assert len(first) == design.rows and first[["a", "b"]].equals(second[["a", "b"]])
        assert not first["y"].equals(second["y"]) and first.equals(simulate(design, 0, 1))
        assert first["a"].nunique() == design.levels[0] and first["b"].nunique() == design.levels[1]


@pytest.mark.parametrize("plain", [False, True])
def test_the_volume_of_the_chains_coordinates_is_that_of_their_map(plain):
    design = DESIGNS[4]
    model = natvi.glmm(design.formula, simulate(design, 2, 1), family=design.family)
    own, _ = posterior_of(model, plain)
    with float64():
        z = jnp.asarray(np.random.default_rng(0).normal(size=own.dimension)) * 0.3
        h = own.centre.shape[0]

        def theta(w: jax.Array) -> jax.Array:
            found = place(jnp.concatenate([z[:h], w]), own)[1]
            return jnp.concatenate([found.local.ravel(), found.shared])

        @quick_jit
        def seen(z: jax.Array) -> tuple[jax.Array, ...]:
            given, point, log_volume = place(z, own)
            return jax.jacfwd(theta)(z[h:]), log_volume, log_density(z, own) - given.value(point)

        jacobian, log_volume, density = map(np.asarray, seen(z))
        volume = np.linalg.slogdet(jacobian)[1]
    assert float(log_volume) == pytest.approx(volume, abs=1e-9) and density == pytest.approx(volume, abs=1e-9)


def made_up(trust: str, shift: float) -> CrossedOutcome:
    zeros, names = [0.0, shift], ["x1", "sd(Intercept|a)"]
    return CrossedOutcome(
        "a", "poisson", "nested", "gva", trust, [], {}, zeros, [1.0, 1.1], zeros, [1.0, 1.0], names, 2500.0, 1.001, 0
    )


def test_wrong_verdicts_are_counted_by_what_could_go_wrong():
    outcomes = [made_up("good", 0.1), made_up("good", -0.3), made_up("use with care", 0.1), made_up("do not use", 2.0)]
    found = rates(outcomes)
    assert found["trusted but off, of all"] == 0.25 and found["trusted but off, of the trusted"] == 0.5
    assert found["alarmed but right, of the right ones"] == 0.5 and found["the Gaussian fit is off"] == 0.5
    report = Report("crossed_verdicts")
    tell(report, outcomes)
    wrong = [cell["column"] for cell in report.cells if cell["metric"].endswith("in posterior sds")]
    assert wrong == ["trusted but off", "alarmed but right"]
