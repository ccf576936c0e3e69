"""Words letter by letter: exactly those that enough sites have, and none of which a site must not speak."""

import numpy as np

from wardround.weak_supervision.search.words import LETTERS, from_codes, go_on, longer_ones, own_words, to_codes

TEXTS = [
    "Severe pain. Seen by Meyer today",
    "No pain, says Meyer; bed 12b",
    "severe cough, meyer again? No: Meyer",
    "pain and cough at 3am",
]


def test_a_site_speaks_of_no_names_numbers_rare_or_denied_words():
    found = own_words(TEXTS, 0.0, 1.0, 2, LETTERS, ["cough"])
    assert found == {"severe", "pain"}
    # meyer is within sentences mostly written with a capital, no always; 12b has digits; today is in one document only.
    assert "meyer" in own_words([text.lower() for text in TEXTS], 0.0, 1.0, 2, LETTERS, [])
    assert own_words(TEXTS, 0.0, 0.5, 2, LETTERS, []) == {"severe", "cough"}, "pain is in three of four"
    assert own_words([], 0.0, 1.0, 1, LETTERS, []) == set()


def search(sites, fewest, most=100):
    beginnings, found, asked = [""], {}, []
    while beginnings:
        asked += beginnings
        places, sums = {one: row for row, one in enumerate(beginnings)}, np.zeros((len(beginnings), len(LETTERS) + 1))
        for own in sites:
            for place in longer_ones(own, places, LETTERS):
                sums[place] += 1
        beginnings, words = go_on(beginnings, sums, LETTERS, fewest, most)
        found |= words
    return found, asked


def test_exactly_the_words_that_enough_sites_have():
    sites = [{"pain", "pains", "fever", "meyer"}, {"pain", "fever", "pale"}, {"pain", "pains", "fever"}]
    found, asked = search(sites, 3)
    assert found == {"pain": 3.0, "fever": 3.0}
    assert not any(one.startswith(("me", "pal", "pains")) for one in asked), "nobody is asked about what few have"
    assert search(sites, 2)[0] == {"pain": 3.0, "fever": 3.0, "pains": 2.0}
    assert search(sites, 4)[0] == {}


def test_no_letter_goes_first_when_there_are_too_many():
    sites = [{letter * 3 for letter in LETTERS[:26]}] * 3
    found, _ = search(sites, 3, most=10)
    assert len(found) == 10
    assert max(found) > "kkk"


def test_codes_survive():
    words = ["a", "don't", "x" * 20]
    assert from_codes(to_codes(words)) == words
    assert from_codes(np.array([[1e9, 97.0, -4.0]])) == ["a"], "numbers that are no letters"
