"""The second server of a consortium: run by another organisation, so that neither server sees an answer."""
