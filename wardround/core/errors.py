"""Mistakes a user can fix, in one paragraph: what is wrong, where, and what to do."""


class Refusal(Exception):
    """Input or a combination that cannot be right; the command line prints it and exits with code 2.

    >>> str(Refusal("the target 'outcome' is missing", where="site va", remedy="add the column or drop the site"))
    "The target 'outcome' is missing (site va). Fix: add the column or drop the site."
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        sentence = what[:1].upper() + what[1:]
        if where:
            sentence += f" ({where})"
        sentence += "."
        if remedy:
            sentence += f" Fix: {remedy}" + ("" if remedy.endswith("?") else ".")
        super().__init__(sentence)


class Diverged(Refusal):
    """Training left the finite numbers: in which round, and at which sites (none where only the loss shows it)."""

    def __init__(self, what: str, number: int, sites: tuple[str, ...] = (), *, also: str = "") -> None:
        self.round = number
        self.sites = sites
        kept = "; the checkpoint of the round before is kept" if number > 1 else ""
        more = f"{also}, " if also else ""
        super().__init__(
            what,
            remedy=f"{more}lower the learning rate, or look for extreme values in the columns of these sites{kept}",
        )
