"""How long it takes to split and prepare many simulated sites, in processor seconds.

Invented sites of 50 rows: six numbers, one of them with gaps, two columns of words, two outcomes. With `--alone` the
sites are asked one by one, as sites were before (for a few hundred at most). Run `python -m benchmarks.preparation
--sites 10000`.
"""

import argparse
import json
import time

import numpy as np
import pandas as pd

from wardround.data.assembly import assemble_table
from wardround.data.load import load
from wardround.data.pooled import rows as pooled_rows

ROWS = 50


def patients(sites: int) -> pd.DataFrame:
    generator, rows = np.random.default_rng(0), sites * ROWS
    frame = pd.DataFrame({f"x{number}": generator.normal(size=rows) for number in range(6)})
    frame.loc[generator.random(rows) < 0.05, "x0"] = np.nan
    return frame.assign(
        site=np.repeat([f"s{number}" for number in range(sites)], ROWS),
        sex=generator.choice(["m", "f"], rows),
        job=generator.choice(list("abcdefg"), rows),
        y=np.where(generator.random(rows) < 0.3, "yes", "no"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Processor seconds of preparing many sites; prints one line of JSON.")
    parser.add_argument("--sites", type=int, default=10_000)
    parser.add_argument("--alone", action="store_true", help="one site after the other")
    options = parser.parse_args()
    if options.alone:
        pooled_rows.MANY = options.sites + 1
    frame = patients(options.sites)
    begun = time.process_time()
    table = assemble_table(frame, origin="invented", target="y", site="site", positive="yes")
    dealt = time.process_time()
    loaded = load(table, seed=1)
    done = time.process_time()
    print(
        json.dumps(
            {
                "sites": len(loaded.federation.sites),
                "deal_out": round(dealt - begun, 3),
                "prepare": round(done - dealt, 3),
                "together": round(done - begun, 3),
                "fingerprint": loaded.fingerprint[:16],
            }
        )
    )


if __name__ == "__main__":
    main()
