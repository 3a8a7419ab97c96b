"""The names under which sds and dispersion parameters are reported."""

from natvi.families.table import Family


def extra_names(family: Family, fixed_names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the dispersion and whatever else all rows share, kept apart from covariates of that name.

    Example:
        >>> from natvi.families.table import FAMILIES
        >>> extra_names(FAMILIES["gamma"], ("Intercept",)), extra_names(FAMILIES["gaussian"], ("sigma",))
        (('shape',), ('residual sigma',))
    """
    return tuple(extra.name if extra.name not in fixed_names else f"residual {extra.name}" for extra in family.extras)


def shown_names(family: Family, fixed_names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names under which tables show them: sigma, or the relative spread 1/sqrt(phi).

    Example:
        >>> from natvi.families.table import FAMILIES
        >>> shown_names(FAMILIES["negative_binomial"], ()), shown_names(FAMILIES["gaussian"], ())
        (('1/sqrt(phi)',), ('sigma',))
    """
    names = extra_names(family, fixed_names)
    return tuple(extra._replace(name=name).shown for name, extra in zip(names, family.extras, strict=True))


def sd_names(r: int, random_names: tuple[str, ...] | None, group: str | None) -> tuple[str, ...]:
    """Return the names of the random effects' sds.

    Example:
        >>> sd_names(1, ("Intercept",), "subject")
        ('sd(Intercept|subject)',)
    """
    if random_names is None or group is None:
        return tuple(f"sd of random effect {k + 1}" for k in range(r)) if r > 1 else ("sd of the random effect",) * r
    return tuple(f"sd({effect}|{group})" for effect in random_names)
