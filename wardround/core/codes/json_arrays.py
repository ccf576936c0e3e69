"""Words inside the arrays of a message, as the bytes of their JSON.

Messages carry arrays only, so that every transport and every privacy transform sees all that leaves a site; names of
columns and categories travel so.
"""

import json
from typing import Any

import numpy as np


def pack(value: Any) -> np.ndarray[Any, Any]:
    """Plain values as bytes in an array.

    >>> unpack(pack({"yes": 3}))
    {'yes': 3}
    """
    return np.frombuffer(json.dumps(value, ensure_ascii=False, allow_nan=False).encode(), np.uint8)


def unpack(array: Any) -> Any:
    return json.loads(np.asarray(array, np.uint8).tobytes().decode())
