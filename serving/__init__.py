"""Additions to Streamlit's server: response headers, limits, health, metrics, memory."""
