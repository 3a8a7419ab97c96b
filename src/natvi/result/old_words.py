"""Words of earlier files: a method with its optimizer in one word, and draws as a structure."""

EXACT = {"exact": "gva", "gva": "gva", "marginal": "marginal", "psis": "psis"}
NOISY = {"stochastic": "gva", "gva": "gva", "rvb1": "rvb1", "rvb2": "rvb2"}


def words_of_today(method: str, structure: str) -> tuple[str, str | None, str]:
    """Return method, optimizer and structure as they are called now; None for an optimizer that is not known.

    Example:
        >>> words_of_today("stochastic adam", "dense"), words_of_today("marginal", "draws")
        (('gva', 'adam', 'dense'), ('marginal', 'ascent', 'arrow'))
    """
    shape = "arrow" if structure == "draws" else structure
    word, _, rule = method.partition(" ")
    if rule and word in NOISY:
        return NOISY[word], rule, shape
    return EXACT.get(method, method), "ascent" if method in EXACT else None, shape
