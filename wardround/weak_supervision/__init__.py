"""Learning from records that nobody has labelled: rules that vote, an expert who judges rules, models of the votes."""
