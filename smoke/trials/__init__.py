"""Trials of `vetted bisect config`: one training run per configuration."""
