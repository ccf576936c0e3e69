"""Words and arrays of any kind, for replies that nobody foresaw."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(["figures", "letter", "cell", "why", "rows", "sites", "wardround"])
ARRAYS = hnp.arrays(
    st.sampled_from([np.bool_, np.uint8, np.int64, np.uint64, np.float32, np.float64]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
NAMES = st.sampled_from(["rows", "loss", "right", "vector", "weight", "card", "counts", "update", "é"])
