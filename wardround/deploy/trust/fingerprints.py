"""A public key as ten short words that two people can read to each other over the telephone.

The first ten bytes of the SHA-256 of the key (DER, SubjectPublicKeyInfo), each a word of a list of 256: eighty bits, so
that nobody finds another key with the same words. The words are common nouns of four to eight letters; no two of them
begin with the same three letters, and at least three letters must be changed to turn one into another.
"""

import hashlib
from collections.abc import Sequence

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wardround.core.errors import Refusal

LIST = """
abacus acorn agate alder almond anchor antler apple apron aspen atlas autumn avenue bamboo barley beacon beetle
bishop bonnet bridge bronze bucket butter cactus camel canoe carpet castle cedar chalk cherry cinder circus clover
cobalt coffee compass cotton cradle cricket crystal cushion cymbal dagger daisy damson dentist desert diamond
dolphin donkey dragon drummer dusk dynamo eagle echo eclipse elbow ember emerald engine envoy errand escape evening
exhibit fabric falcon farmer feather fiddle fjord flannel flint foghorn forest fossil freckle furnace gallop garden
gazelle geyser giraffe glacier goblet gondola goose gopher granite grotto guitar gypsum harvest hatchet hedge helmet
hexagon hickory hollow hotel icicle igloo indigo insect iris island ivory jackdaw jaguar jasmine jelly jersey jigsaw
jungle jury kayak kennel ketchup kidney kimono kitchen kiwi koala lagoon lantern laurel lemon leopard lettuce lilac
linen lizard lobster lotus lyric magnet mammoth mango marble meadow mercury mineral mirror mitten mosaic muffin
mustard mystery napkin narwhal nectar nickel nimbus noodle north nugget nutmeg oasis obelisk ocean octopus olive
onion orange orchid osprey ostrich palace panda paprika parrot pasture pearl pebble pelican pencil pepper phantom
piano pigeon pirate polar poppy potato prairie pretzel pudding pumpkin puzzle python quarry quill rabbit radish
raven rhubarb ribbon robin rudder rustic saffron sardine satin seagull shelter silver sketch slipper smoke snail
spider squash stable steam sunset swallow syrup tadpole tailor teapot temple terrace thimble thunder tinsel topaz
tornado tractor trumpet tulip turtle typhoon uniform vanilla viking village vinegar violin volcano voyage vulture
waffle walnut water weasel whistle window wombat yacht yogurt zebra zenith zigzag zinc
"""
WORDS = tuple(LIST.split())
LENGTH = 10
"""Words of a fingerprint."""
START = {word[:3]: word for word in WORDS}


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """The ten words of a key, separated by spaces."""
    encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return " ".join(WORDS[byte] for byte in hashlib.sha256(encoded).digest()[:LENGTH])


def parse_fingerprint(said: str | Sequence[str], where: str = "") -> str:
    """A fingerprint as somebody typed or heard it, written as `fingerprint` writes it; refused if it cannot be one.

    >>> parse_fingerprint("Zinc-acorn zinc zinc zinc zinc zinc zinc zinc zinc")
    'zinc acorn zinc zinc zinc zinc zinc zinc zinc zinc'
    """
    text = said if isinstance(said, str) else " ".join(said)
    words = text.casefold().replace("-", " ").replace(",", " ").split()
    for word in words:
        if word not in WORDS:
            near = START.get(word[:3])
            raise Refusal(
                f"'{word[:40]}' is not a word of a fingerprint",
                where=where,
                remedy=f"did you mean '{near}'?" if near else "ask for that word again",
            )
    if len(words) != LENGTH:
        raise Refusal(
            f"a fingerprint has {LENGTH} words, and these are {len(words)}", where=where, remedy="read all of them"
        )
    return " ".join(words)
