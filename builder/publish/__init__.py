"""From a certificate to a registry: sign, push, verify, pin."""
