"""Values of query strings that have a form of their own."""


def labels(text: str | None) -> dict[str, str]:
    """Read ``key=value`` pairs that are comma separated."""
    pairs = [pair.partition("=") for pair in (text or "").split(",") if pair]
    return {name: value for name, _, value in pairs}
