"""Measurements about Vetted itself: ratios, all variants in one run, recorded under docs/evidence/."""
