"""The pain experiment: pain told from faces filmed in sessions, learned centrally, federated, personally and alone."""
