"""Pictures of single images in a site's own report; no other page has any."""

from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple

from wardround.report.html.markup import Html, join, paragraph, safe, section

TITLE = "The images themselves"
GROUPS = {"worst": "Where the model does worst", "usual": "As usual", "best": "Where the model does best"}


class CasePicture(NamedTuple):
    """One test image with two outlines, as PNG; `row` is its place among the site's test images, from 1 on."""

    group: str
    row: int
    dice: float
    iou: float
    png: bytes


def pictures_section(pictures: Sequence[CasePicture]) -> Html:
    """Nothing where there are none."""
    if not pictures:
        return Html("")
    words = paragraph(
        safe(
            "Yellow is what was drawn by hand, blue what the model marks; where they coincide, blue covers yellow. "
            "These images are your own test images: they are in this page only, which stays at your hospital."
        )
    )
    parts = [words]
    for group, title in GROUPS.items():
        own = [one for one in pictures if one.group == group]
        if own:
            parts += [Html(f"<h3>{safe(title)}</h3>"), Html(f'<div class="side">{join(map(figure, own))}</div>')]
    return section("images", TITLE, *parts)


def figure(one: CasePicture) -> Html:
    words = safe(f"Test image {one.row}: Dice {one.dice:.2f}, IoU {one.iou:.2f}")
    content = b64encode(one.png).decode("ascii")
    image = f'<img src="data:image/png;base64,{content}" width="240" alt="{words}">'
    return Html(f"<figure>{image}<figcaption>{words}</figcaption></figure>")
