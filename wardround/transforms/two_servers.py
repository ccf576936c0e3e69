"""Two servers: bad sites are told from good ones, and nobody sees an update.

After He, Karimireddy and Jaggi, "Secure Byzantine-Robust Machine Learning", 2020. Every update is split into two halves
that are noise, one for each of two servers. They open the inner products of all updates (hence all distances), choose
with krum, multi_krum or weight_erosion, and open one sum, with the chosen weights.
`wardround.privacy.two_servers.protocol` is that protocol. In simulation the halves are left out: they cancel exactly,
so they would change no bit; the rounding to whole numbers is done and shows.

What is told: to both servers lengths, angles and distances of the updates, how many patients each site has, who was
chosen; to who reads the result the chosen sum (with krum that is ONE site's update: prefer multi_krum). The servers
must not collude. Needs the aggregator krum or multi_krum, or the algorithm weight_erosion, and at least 3 sites in a
round. Must be the last transform. An update longer than `bound` stops the study and names the site (put clip before
it). Over real sites the study names a second server, run by another organisation, as `second` in [deploy]; every site
then deals the products of its own mask, and `side` stays 1. Costs 8 bytes a parameter from a site, and n + 2 vectors of
8 bytes a parameter between the servers.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from wardround.core import trees
from wardround.core.bounds import Count, Positive
from wardround.core.chain import identity
from wardround.core.contracts import Key, Message, Transform
from wardround.privacy.secure_sum.masks import KEY_BYTES
from wardround.privacy.two_servers.gram import LENGTH_BITS
from wardround.privacy.two_servers.protocol import FEWEST, SLACK


def two_servers(*, bound: Positive = 16.0, side: Count = 1) -> Transform:
    """Two servers find bad sites, and see distances between updates only (bound: longest update, side² dealers)."""
    places = math.floor(LENGTH_BITS - math.log2(bound))

    def up(received: Message, answer: Message, key: Key) -> Message:
        weight = answer.arrays["weight"]
        said = {name: tree for name, tree in answer.arrays.items() if name != "weight"}
        update = trees.divide_or_zero(said, weight)
        fits = jnp.sqrt(trees.squared_norm(update)) <= bound * (1 + SLACK)  # NaN does not
        # Exact where single precision has fewer places than the whole numbers: scaling by a power of two.
        rounded = jax.tree.map(lambda leaf: jnp.round(leaf * 2.0**places) * 2.0**-places, update)
        told = jax.tree.map(lambda leaf: jnp.where(fits, leaf * weight, jnp.nan), rounded)
        return Message({**told, "weight": weight}, answer.meta)

    def bytes_up(answer: Message) -> int:
        """The masked update, a seed for each column of dealers and what pins it down, and the weight."""
        entries = sum(
            int(np.prod(leaf.shape))
            for name, tree in answer.arrays.items()
            if name != "weight"
            for leaf in jax.tree.leaves(tree)
        )
        return 8 * entries + 2 * KEY_BYTES * side + 4

    return identity()._replace(
        up=up,
        products_only=True,
        fewest=FEWEST,
        bytes_up=bytes_up,
        limit=f"{bound:g}, the greatest length of an update that the two servers take",
        words="Two servers see the distances between the sites' updates, how many patients each site has, and the sum "
        "of the chosen updates, but no update; they must not collude.",
    )
