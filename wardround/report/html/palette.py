"""Colours and marks of methods: told apart by colour-blind readers, on paper, and by shape alone.

Colours are those of Okabe and Ito (2008), the pale ones darkened for contrast on white.
"""

COLOURS = ("#0072B2", "#C24E00", "#00785A", "#A34C84", "#8A6A00", "#2B7FB0", "#4D4D4D")
MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon")
PARTS = {"train": "#0072B2", "validation": "#7FB3D5", "test": "#E69F00"}

INK = "#1F2933"
QUIET = "#52606D"
LINE = "#D9E2EC"


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def mark(index: int) -> str:
    """Cycles with another length than the colours, so that no pair repeats among the first 56 methods."""
    return MARKS[index % len(MARKS)]


def with_opacity(colour: str, share: float) -> str:
    """The colour with the given opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share:g})"
