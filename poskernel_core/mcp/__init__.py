"""PosKernel for assistants: tools over the Model Context Protocol."""
