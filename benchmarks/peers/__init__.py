"""One script a peer, run inside that peer's own environment, and the work that all of them do."""

import time
from pathlib import Path

# This module is loaded before any script of the package, and so before any framework: start-up counts from here.
STARTED = time.perf_counter()

ROOT = Path(__file__).resolve().parent.parent.parent
