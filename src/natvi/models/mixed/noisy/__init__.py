"""Mixed models fitted by noisy steps: the paper's Algorithms 2S (gva) and 1S (rvb1, rvb2)."""
