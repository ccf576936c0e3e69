"""Real hospitals: the coordinator's and the sites' long-lived processes, who they are, what may be asked, what left."""
