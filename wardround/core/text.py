"""Numbers as people read them, wherever a sentence is made."""

UNITS = ("bytes", "kB", "MB", "GB", "TB")


def format_bytes(count: float) -> str:
    """Decimal units, three digits.

    >>> format_bytes(999), format_bytes(12_345_678)
    ('999 bytes', '12.3 MB')
    """
    unit = 0
    # 999.5 kB would be written as "1e+03 kB"
    while count >= 999.5 and unit < len(UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.3g} {UNITS[unit]}" if count < 999.5 else f"{count:,.0f} {UNITS[unit]}"
