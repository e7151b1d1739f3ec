"""The page: certificates, evidence, locks and advisories as a static site that loads nothing from elsewhere."""
