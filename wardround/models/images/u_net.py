"""U-Net: halves an image step by step, doubles it back, and sees at each size what was seen on the way down.

Ronneberger, Fischer, Brox, "U-Net: Convolutional Networks for Biomedical Image Segmentation", MICCAI 2015. Here with
"same" padding, so that the mask is as large as the image, and with nearest-neighbour doubling followed by a convolution
in place of a transposed one. A level is two 3 x 3 convolutions, each with normalization and ReLU; `depth` levels halve
the image by 2 x 2 max pooling, and the number of filters doubles with each. With c channels, f filters and depth d the
convolutions have 9 (c f + f^2) + 2 f parameters at the top, 9 (f_k-1 f_k + f_k^2) + 2 f_k at level k (f_k = f 2^k), on
the way up 9 (3 f_k f_k + f_k^2) + 2 f_k at each of levels d - 1 to 0, and the last 1 x 1 layer f + 1; normalization
adds 2 a filter ("group") or 4 ("batch", whose running statistics are parameters, see `models/normalization.py`).

Costs memory: activations of all levels are held for the gradient.
Convolutions are those of `convolutions.py`.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.traverse_util import unflatten_dict

from wardround.core.bounds import Count, NotNegative
from wardround.core.contracts import Array, Model, Params, Task, intensities
from wardround.core.errors import Refusal
from wardround.models.augmentation import Brightness
from wardround.models.cnn import PatchConv
from wardround.models.images.mask_augmentation import MaskAugmentation, with_mask_augmentation
from wardround.models.images.mask_loss import LOSSES, MaskLoss
from wardround.models.images.max_pool import largest_of_four
from wardround.models.normalization import Normalization, from_normalized, normalized


class UNetwork(nn.Module):  # type: ignore[misc]
    """Maps (rows, height, width, channels) to raw outputs (rows, height, width), or to what the last layer sees."""

    filters: int
    depth: int
    normalization: Normalization

    def level(self, x: Array, features: int, name: str, mask: Array | None) -> Array:
        for place in ("a", "b"):
            x = PatchConv(features, (3, 3), name=f"{name}_{place}")(x)
            x = jax.nn.relu(normalized(x, mask, self.normalization, f"{name}_{place}_norm"))
        return x

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Array, mask: Array | None, seen: bool = False) -> Array:
        passed = []
        for step in range(self.depth):
            x = self.level(x, self.filters << step, f"down_{step}", mask)
            passed.append(x)
            x = largest_of_four(x)
        x = self.level(x, self.filters << self.depth, "middle", mask)
        for step in reversed(range(self.depth)):
            x = jnp.concatenate([passed[step], doubled(x)], axis=-1)
            x = self.level(x, self.filters << step, f"up_{step}", mask)
        outputs: Array = nn.Dense(1, name="mark")(x)[..., 0]
        return x if seen else outputs


def doubled(x: Array) -> Array:
    """Twice as high and wide, every pixel four times."""
    rows, height, width, channels = x.shape
    wide = jnp.broadcast_to(x[:, :, None, :, None], (rows, height, 2, width, 2, channels))
    return wide.reshape(rows, 2 * height, 2 * width, channels)


def u_net(
    task: Task,
    *,
    filters: Count = 16,
    depth: Count = 3,
    normalization: Normalization = "group",
    loss: MaskLoss = "both",
    statistics_rate: NotNegative = 1.0,
    flip: bool = False,
    turn: bool = False,
    brightness: Brightness = 0.0,
    l2: NotNegative = 0.0,
) -> Model:
    """Marks a structure on images, pixel by pixel (filters at the top, depth: how often the image is halved)."""
    if not task.segmentation or len(task.shape) != 3:
        raise Refusal(
            f"a U-Net learns masks of images, but the task is a {task.kind} of rows of shape {task.shape}",
            where=f"target {task.target!r}",
            remedy='take the model \'cnn\' for labels of images, or give masks: masks = "..." with target = "mask"',
        )
    if any(side % (1 << depth) for side in task.shape[:2]):
        raise Refusal(
            f"images of {task.shape[0]} x {task.shape[1]} cannot be halved {depth} times without a rest",
            where="[model] depth",
            remedy=f"choose a size whose sides are multiples of {1 << depth} in [data], or a smaller depth",
        )
    network = UNetwork(filters, depth, normalization)
    plain = from_normalized(network, LOSSES[loss], task, statistics_rate=statistics_rate, l2=l2)

    def features(params: Params, x: Array) -> Array:
        nested = unflatten_dict(params, sep="/")
        found: Array = network.apply({"params": nested}, intensities(x), None, True)
        return found

    model = plain._replace(features=features)
    return with_mask_augmentation(model, task, MaskAugmentation(flip, turn, brightness))
