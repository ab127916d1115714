"""Constants and conversions; the only module that multiplies by 1000 or 3600.

A month is 730 h and a year 8,760 h, the convention of cloud price calculators. GB = 10⁹ B, GiB = 2³⁰ B.
"""

HOURS_PER_YEAR = 8760.0
HOURS_PER_MONTH = HOURS_PER_YEAR / 12.0
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0
BYTES_PER_GIB = 2.0**30


def ms_to_s(milliseconds: float) -> float:
    """Milliseconds to seconds.

    Examples
    --------
    >>> ms_to_s(250)
    0.25
    """
    return milliseconds / 1e3


def s_to_ms(seconds: float) -> float:
    """Seconds to milliseconds."""
    return seconds * 1e3


def gb_to_mb(gigabytes: float) -> float:
    """Gigabytes (10⁹ B) to megabytes (10⁶ B)."""
    return gigabytes * 1e3


def w_to_kw(watts: float) -> float:
    """Watts to kilowatts."""
    return watts / 1e3


def usd_per_month(price_usd_per_h: float) -> float:
    """Cost of one machine that runs all month [USD/month].

    Examples
    --------
    >>> usd_per_month(0.5)
    365.0
    """
    return price_usd_per_h * HOURS_PER_MONTH


def cents(usd: float) -> int:
    """Money as whole cents, so that comparisons are exact.

    Examples
    --------
    >>> cents(3 * 0.40) == cents(1.20)
    True
    """
    return round(usd * 100)
