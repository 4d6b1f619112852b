"""The reference's manager as a subject."""
