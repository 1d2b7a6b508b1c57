"""Why a token looks at another: one score, split by what the query and the key are made of."""
