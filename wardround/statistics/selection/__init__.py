"""Which rows and columns of a site's table an analysis looks at, in the form that all sites agreed on."""
