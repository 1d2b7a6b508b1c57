"""Previous-token heads: ranking, mechanism, and the stages of attention on a text."""
