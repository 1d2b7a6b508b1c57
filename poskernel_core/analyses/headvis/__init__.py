"""The metrics of HeadVis, and texts in which a head attends most."""
