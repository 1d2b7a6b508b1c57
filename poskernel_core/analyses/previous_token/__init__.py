"""Previous-token heads: which, by which mechanism, and the stages of their attention on a text."""
