"""From an image to a certificate: the suite runs, and one module judges the result."""
