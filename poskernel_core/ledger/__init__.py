"""The reproduction ledger: published figures compared with computed ones."""
