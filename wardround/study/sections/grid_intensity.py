"""Grams of CO2 for a kilowatt-hour from the grid of a country: a table that needs no network.

Yearly means of Ember, "Yearly electricity data" (CC BY 4.0), for 2023 or, where that was not there yet, 2022;
emissions of generation over a plant's life, rounded to grams. A hospital with a contract or a roof of its own knows
better: it says its own factor.
"""

from collections.abc import Mapping

from wardround.core.errors import Refusal

WORLD = "WORLD"
TABLE = """
ARG 395  AUS 570  AUT 111  BEL 138  BGD 678  BRA 106  CAN 161  CHE 35  CHL 354  CHN 586  CIV 394  COD 24  CZE
450  DEU 381  DNK 152  EGY 570  ESP 174  EST 417  ETH 25  EU 244  FIN 79  FRA 56  GBR 238  GHA 484  GIN 237
GRC 337  HUN 204  IDN 676  IND 705  IRL 291  ISL 28  ISR 583  ITA 331  JPN 513  KEN 83  KOR 442  LBR 228  LUX
105  MEX 475  MYS 606  NGA 516  NLD 268  NOR 30  NZL 111  PAK 464  POL 662  PRT 166  ROU 241  RWA 316  SEN 512
SGP 474  SLE 50  SVK 117  SVN 231  SWE 41  TUR 465  TWN 640  UGA 45  UKR 260  USA 386  ZAF 730
WORLD 486
"""
GRAMS_PER_KWH: Mapping[str, int] = dict(zip(TABLE.split()[::2], map(int, TABLE.split()[1::2]), strict=True))
"""By the three letters of ISO 3166."""


def grams_per_kwh(country: str) -> int:
    """Of a country's grid; an unknown one is refused with those that are known."""
    found = GRAMS_PER_KWH.get(country.upper())
    if found is None:
        raise Refusal(
            f"no grid intensity is known for '{country}'",
            where="[budget] country",
            remedy=f"give grams_per_kwh yourself, or one of {', '.join(sorted(GRAMS_PER_KWH))}",
        )
    return found
