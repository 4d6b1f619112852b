"""The ledger of known divergences."""
