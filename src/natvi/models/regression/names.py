"""The names under which sds and dispersion parameters are reported."""

from natvi.families.table import Family


def dispersion_name(family: Family, fixed_names: tuple[str, ...]) -> str | None:
    """Return the name of the dispersion parameter, kept apart from a covariate of that name.

    Example:
        >>> from natvi.families.table import FAMILIES
        >>> dispersion_name(FAMILIES["gamma"], ("Intercept",)), dispersion_name(FAMILIES["gaussian"], ("sigma",))
        ('shape', 'residual sigma')
    """
    if family.dispersion is None:
        return None
    name = family.dispersion.removeprefix("log(").removesuffix(")")
    return name if name not in fixed_names else f"residual {name}"


def spread_name(family: Family, fixed_names: tuple[str, ...]) -> str | None:
    """Return the name under which tables show the dispersion: sigma, or the relative spread 1/sqrt(phi).

    Example:
        >>> from natvi.families.table import FAMILIES
        >>> spread_name(FAMILIES["negative_binomial"], ()), spread_name(FAMILIES["gaussian"], ())
        ('1/sqrt(phi)', 'sigma')
    """
    name = dispersion_name(family, fixed_names)
    return name if name is None or family.read_power == 1.0 else f"1/sqrt({name})"


def sd_names(r: int, random_names: tuple[str, ...] | None, group: str | None) -> tuple[str, ...]:
    """Return the names of the random effects' sds.

    Example:
        >>> sd_names(1, ("Intercept",), "subject")
        ('sd(Intercept|subject)',)
    """
    if random_names is None or group is None:
        return tuple(f"sd of random effect {k + 1}" for k in range(r)) if r > 1 else ("sd of the random effect",) * r
    return tuple(f"sd({effect}|{group})" for effect in random_names)
