"""Amounts in words for people."""

UNITS = ("bytes", "kB", "MB", "GB", "TB")


def size_in_words(count: float) -> str:
    """Decimal units, three digits.

    >>> size_in_words(999), size_in_words(12_345_678)
    ('999 bytes', '12.3 MB')
    """
    unit = 0
    # 999.5 kB would be written as "1e+03 kB"
    while count >= 999.5 and unit < len(UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.3g} {UNITS[unit]}" if count < 999.5 else f"{count:,.0f} {UNITS[unit]}"
