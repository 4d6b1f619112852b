"""The rendered spec: a static site that the registry, the spec and its pictures are made into."""
