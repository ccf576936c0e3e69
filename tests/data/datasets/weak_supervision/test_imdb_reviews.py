"""The reviews: as many as published, half of each, without the marks of line breaks."""

from wardround.data.datasets.weak_supervision.imdb_reviews import imdb_reviews


def test_as_many_as_published_and_half_positive():
    (rows,) = imdb_reviews().sites.values()
    assert rows["sentiment"].value_counts().to_dict() == {"negative": 9_000, "positive": 9_000}
    assert not rows["review"].str.contains("<br />", regex=False).any()
    few = imdb_reviews(rows=100)
    assert len(few.sites["all"]) == 100
    assert few.sites["all"].equals(imdb_reviews(rows=100).sites["all"]), "the same ones every time"
