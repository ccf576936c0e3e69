"""What an approval says about images: how many and in which form a study sees them, and what stays here."""

from collections.abc import Mapping

from wardround.core.text import counted
from wardround.data.table import Table


def image_sentences(table: Table, kinds: Mapping[str, str]) -> tuple[str, ...]:
    """For whoever decides; what was noticed while files were read is told here and to nobody else."""
    forms = [f"{name} ({kind.removeprefix('image ')})" for name, kind in kinds.items() if kind.startswith("image")]
    if not forms:
        return ()
    (frame,) = table.sites.values()
    seen = " ".join(table.notes)
    return (
        f"{counted(len(frame), 'image')} (height x width x channels as the study sees them: {', '.join(forms)})."
        " Pixels, thumbnails, names of files and headers never leave this site.",
        *((f"Seen while they were read, and told to you alone: {seen}",) if seen else ()),
    )


def statistics_sentence(layers: tuple[str, ...]) -> tuple[str, ...]:
    """Where batch normalization's statistics are among what is sent."""
    if not layers:
        return ()
    return (
        f"Among these numbers are the running mean and variance of {', '.join(layers)} (batch normalization), which say"
        " how your rows look on average. The study says how fast they follow: where statistics_rate times learning_rate"
        " is 1 they are those of the last batch alone, which may hold one patient. With the algorithm fed_bn they would"
        " stay here.",
    )
