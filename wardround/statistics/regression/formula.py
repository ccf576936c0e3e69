"""Formulas such as `death ~ age * sex + spline(bmi, 4) + offset(log_days)`: a small grammar, nothing is evaluated.

    formula  = name "~" term { "+" term }
    term     = "1" | "0" | factor { (":" | "*") factor }
    factor   = name | spline(name, df) | category(name, "reference") | log(name) | square(name) | offset(name)

A name is a column; one with blanks or signs in it stands between backquotes. a * b is a + b + a:b. With 0 there is no
intercept. What the grammar does not know is refused by its place.
"""

import re
from itertools import combinations
from typing import NamedTuple

from wardround.core.errors import Refusal

TOKEN = re.compile(
    r"\s*(?:(?P<name>[^\W\d][\w.]*)|`(?P<quoted>[^`]+)`|(?P<number>\d+(?:\.\d+)?)|(?P<text>\"[^\"]*\"|'[^']*')"
    r"|(?P<sign>[~+:*(),-]))"
)
FUNCTIONS = ("spline", "category", "log", "square", "offset")
WHERE = "[analysis] formula"
MOST_TERMS = 200


class Variable(NamedTuple):
    """A column, or a function of one; `argument` is the degrees of freedom of a spline, or a reference level."""

    column: str
    function: str = ""
    argument: str = ""

    @property
    def label(self) -> str:
        more = f", {self.argument}" if self.function == "spline" else ""
        return f"{self.function}({self.column}{more})" if self.function not in ("", "category") else self.column


Term = tuple[Variable, ...]
"""Variables that are multiplied; one of them alone is a main effect."""


class Formula(NamedTuple):
    """What is explained by what."""

    outcome: str
    terms: tuple[Term, ...]
    intercept: bool = True
    offsets: tuple[str, ...] = ()

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(dict.fromkeys(variable for term in self.terms for variable in term))

    @property
    def columns(self) -> tuple[str, ...]:
        """All that are read, the outcome first."""
        named = [variable.column for variable in self.variables]
        return tuple(dict.fromkeys((self.outcome, *named, *self.offsets)))


def label_of(term: Term) -> str:
    return ":".join(variable.label for variable in term)


def parse_formula(text: str) -> Formula:
    """
    >>> parse_formula("death ~ age * sex").terms == parse_formula("death ~ age + sex + age:sex").terms
    True
    """
    return Parser(text).formula()


class Parser:
    """Reads tokens from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.tokens: list[tuple[str, str, int]] = []
        place = 0
        while text[place:].strip():
            found = TOKEN.match(text, place)
            if found is None:
                raise self.refusal(place + len(text[place:]) - len(text[place:].lstrip()))
            kind = str(found.lastgroup)
            self.tokens.append((kind, str(found[kind]), found.start(kind)))
            place = found.end()

    def refusal(self, place: int, what: str = "") -> Refusal:
        shown = f"{self.text[:place]}>>>{self.text[place:]}"
        return Refusal(
            what or f"the formula cannot be read from >>> on: {shown[:200]}",
            where=WHERE,
            remedy="write it like outcome ~ age + sex * dose + spline(bmi, 4); names with blanks stand in backquotes",
        )

    @property
    def next(self) -> tuple[str, str, int]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "", len(self.text))

    def take(self, *signs: str) -> str:
        """The next sign, if it is one of these."""
        kind, word, _ = self.next
        if kind == "sign" and word in signs:
            self.at += 1
            return word
        return ""

    def require(self, sign: str) -> None:
        if not self.take(sign):
            raise self.refusal(self.next[2])

    def name(self) -> str:
        kind, word, place = self.next
        if kind not in ("name", "quoted"):
            raise self.refusal(place)
        self.at += 1
        return word

    def formula(self) -> Formula:
        outcome = self.name()
        self.require("~")
        terms: list[Term] = []
        offsets: list[str] = []
        intercept = True
        while True:
            kind, word, place = self.next
            if kind == "number" and word in ("0", "1"):
                self.at += 1
                intercept = word == "1"
            else:
                for term in self.product():
                    if term[0].function == "offset":
                        if len(term) > 1:
                            raise self.refusal(place, "an offset cannot be multiplied with a column")
                        offsets.append(term[0].column)
                    elif sorted(term) not in [sorted(one) for one in terms]:
                        terms.append(term)
            if self.next[0] == "end":
                break
            self.require("+")
        if len(terms) > MOST_TERMS:
            raise self.refusal(0, f"the formula has {len(terms)} terms, and {MOST_TERMS} are the most")
        found = Formula(outcome, tuple(sorted(terms, key=len)), intercept, tuple(dict.fromkeys(offsets)))
        if not terms and not intercept:
            raise self.refusal(0, "the formula explains the outcome by nothing")
        if outcome in [variable.column for variable in found.variables] or outcome in offsets:
            raise self.refusal(0, f"the outcome '{outcome}' stands on both sides of the formula")
        return found

    def product(self) -> list[Term]:
        """All terms that factors joined by : and * stand for."""
        groups: list[list[Variable]] = [[self.factor()]]
        while sign := self.take(":", "*"):
            if sign == ":":
                groups[-1].append(self.factor())
            else:
                groups.append([self.factor()])
        if len(groups) > 4:
            raise self.refusal(self.next[2], "more than four columns are multiplied with *")
        subsets = [chosen for size in range(1, len(groups) + 1) for chosen in combinations(groups, size)]
        return [tuple(dict.fromkeys(one for group in chosen for one in group)) for chosen in subsets]

    def factor(self) -> Variable:
        kind, word, place = self.next
        name = self.name()
        if kind == "quoted" or self.next[:2] != ("sign", "("):
            return Variable(name)
        if word not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise self.refusal(place, f"the formula has a function '{word}', and there are only {known}")
        self.require("(")
        column, argument = self.name(), ""
        if self.take(","):
            kind, argument, place = self.next
            if kind not in ("number", "text"):
                raise self.refusal(place)
            self.at += 1
            argument = argument.strip("\"'")
        self.require(")")
        if word == "spline" and not (argument.isdigit() and 2 <= int(argument) <= 10):
            raise self.refusal(place, "a spline needs its degrees of freedom, from 2 to 10: spline(age, 4)")
        if word in ("log", "square", "offset") and argument:
            raise self.refusal(place, f"{word} takes one column and nothing else")
        return Variable(column, word, argument)
