"""What a site may tell of its patients: rules written once, kept at the site before anything leaves it.

Every answer that passes them has counts that are 0 or at least a cell, so a sum over sites has no small cell either: a
secure sum then hides the single site, and nothing in the sum has to be hidden afterwards.
"""
