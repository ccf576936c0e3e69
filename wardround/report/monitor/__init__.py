"""The page of a monitor: is the model still right, and are the patients still those it knows?"""
