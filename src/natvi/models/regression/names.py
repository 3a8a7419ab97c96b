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


def sd_names(r: int, random_names: tuple[str, ...] | None, group: str | None) -> tuple[str, ...]:
    """Return the names of the random effects' sds.

    Example:
        >>> sd_names(1, ("Intercept",), "subject")
        ('sd(Intercept|subject)',)
    """
    if random_names is None or group is None:
        return tuple(f"sd of random effect {k + 1}" for k in range(r)) if r > 1 else ("sd of the random effect",) * r
    return tuple(f"sd({effect}|{group})" for effect in random_names)
