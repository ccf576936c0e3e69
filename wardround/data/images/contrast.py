"""Images of different devices made alike, each by itself: structures bright on a dark ground, contrast spread out.

Where more than half of an image is bright (its median grey value is above the middle), it is turned into its negative,
so that dark structures on a light ground look like bright ones on a dark ground. Then, in every channel, the values
between which 98 % of the pixels lie (percentiles 1 and 99) become 0 and 255. A channel whose values lie closer together
than `LEAST` is spread as if they lay that far apart: noise of an empty image stays faint.

It looks at one image and at nothing else, so no number of it leaves a site, and a new image is treated as those of
training were. What it takes away (how bright an image is, whether its ground is dark) a model can no longer use.
"""

from typing import Any

import numpy as np

Pixels = np.ndarray[Any, Any]
LEAST = 16
"""Of 256 values; between the percentiles."""
WHITE = 255


def standardize(pixels: Pixels) -> Pixels:
    """(height, width, channels) from 0 to 255 in the same shape."""
    grey = pixels.mean(axis=2)
    found = WHITE - pixels if np.median(grey) > WHITE / 2 else pixels
    low, high = np.percentile(found, [1, 99], axis=(0, 1))
    spread = np.maximum(LEAST, high - low)
    made: Pixels = np.clip(np.round((found - low) * (WHITE / spread)), 0, WHITE).astype(np.uint8)
    return made
