"""From a start to the optimum of the bound: climb, polish, and the covariance that the optimum implies."""
