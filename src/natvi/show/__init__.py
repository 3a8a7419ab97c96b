"""Pictures and pages: plain arrays and frames in."""
