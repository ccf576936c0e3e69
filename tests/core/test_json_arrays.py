"""Words come back from the arrays they travel in."""

import json

import numpy as np
import pytest

from wardround.core.codes.json_arrays import pack, unpack


def test_packed_values_come_back() -> None:
    value = {"a": [1, 2.5, "é"], "b": None}
    assert unpack(pack(value)) == json.loads(json.dumps(value))
    assert pack(value).dtype == np.uint8


def test_what_is_no_number_is_not_packed() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack(float("nan"))
