"""A log-density of very many rows, fitted by noisy steps on minibatches."""
