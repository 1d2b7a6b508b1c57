"""The instrument: what is the same beside every page, and the parts that the browser draws."""
