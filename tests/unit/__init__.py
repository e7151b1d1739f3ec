"""Tests of the package `builder`: no Docker, no network, seconds."""
