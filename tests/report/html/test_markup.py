"""Text made safe for HTML, for the labels of charts, and for JSON inside a page."""

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.report.html.markup import FigureCell, Html, cell_html, chart_label, plain, safe, script_json, table


@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False), st.lists))
def test_embedded_json_says_the_same_and_cannot_end_its_script(value: object) -> None:
    text = script_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_embedded_json_of_a_closing_tag_by_hand() -> None:
    assert script_json("</script>&") == '"\\u003c/script\\u003e\\u0026"'
    with pytest.raises(ValueError, match="JSON compliant"):
        script_json(float("nan"))


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.attribute: str | None = ""
        self.text = ""
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attribute = dict(attrs).get("title")

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text() | st.text(alphabet="<>&\"'=/ ;#x27lt"))
def test_safe_text_is_read_back_as_it_was_in_both_places(text: str) -> None:
    reader = Reader()
    reader.feed(f'<p title="{safe(text)}">{safe(text)}</p>')
    reader.close()
    assert reader.tags == ["p"]
    assert reader.text == reader.attribute == plain(text)


def test_names_cannot_turn_the_text_around_them_or_break_the_file() -> None:
    assert plain("a\u202e0.9\u2066\x00\x1b[31m\n b\ud800") == "a0.9[31m b"
    assert plain(" \n") == "(no name)"
    assert plain("Côte d'Ivoire 医院") == "Côte d'Ivoire 医院"


def test_chart_labels_are_cut_before_they_are_escaped() -> None:
    assert chart_label("<b>Bo</b> & Co") == "&lt;b&gt;Bo&lt;/b&gt; &amp; Co"
    assert chart_label("&&&&", 3) == "&amp;&amp;…"


def test_a_table_makes_safe_whatever_is_not() -> None:
    made = table(
        "<c>", ["<h>", Html("<i>h</i>")], [["<a>", Html("<b>b</b>")], ["n", FigureCell("<1>", ("<2>",), best=True)]]
    )
    assert "<a>" not in made
    assert '<th scope="row">&lt;a&gt;</th><td><b>b</b></td>' in made
    assert '<th scope="col">&lt;h&gt;</th><th scope="col"><i>h</i></th>' in made
    best = '<strong>&lt;1&gt;</strong><span class="sr"> (best)</span>'
    assert f'<td>{best} <span class="interval">&lt;2&gt;</span></td>' in made


def test_text_that_was_joined_from_safe_parts_is_made_safe_again_unless_it_says_so() -> None:
    # Better a visible &lt; than a name that runs: only Html itself is taken as it is.
    assert cell_html(Html("<b>") + "x") == "&lt;b&gt;x"
    assert cell_html(Html("<b>x</b>")) == "<b>x</b>"
    assert cell_html("") == "(no name)"
    assert cell_html(Html("")) == ""
