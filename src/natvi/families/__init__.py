"""Response distributions as rows of data: log-density, link, exact expectations."""
