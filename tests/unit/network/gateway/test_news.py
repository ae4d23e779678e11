from atoll.network.gateway import news
from atoll.network.gateway.news import News


def test_what_repeats_is_told_once() -> None:
    found = News()
    assert [found.has(thing, 1.0) for thing in ("a", "b", "a", "b")] == [True, True, False, False]


def test_inventing_things_does_not_make_more_news() -> None:
    found = News()
    told = sum(found.has(number, 1.0) for number in range(1_000))
    assert told == news.BURST
    assert found.has("later", 1.0 + 1 / news.RATE)
    assert not found.has("too soon", 1.0 + 1 / news.RATE)


def test_what_was_forgotten_is_news_again() -> None:
    found, hours = News(), 1 / news.RATE
    for number in range(news.KEPT + 1):
        assert found.has(number, number * hours)
    assert not found.has(1, news.KEPT * hours)
    assert found.has(0, (news.KEPT + 1) * hours)
