"""How a question reaches every site."""

from collections.abc import Callable, Sequence

from wardround.core.contracts import Message, Query, Report, Site

Ask = Callable[[Query, Message], Report]
"""How a question reaches all sites: `ask_all` on this machine, or an engine's `ask`."""


def ask_all(query: Query, message: Message, sites: Sequence[Site]) -> Report:
    """Each site answers for itself; only the answers are combined."""
    return query.combine([query.ask(message, site) for site in sites])
