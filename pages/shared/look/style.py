"""The look of all pages that Streamlit's theme has no setting for."""

from pathlib import Path

import streamlit as st

SHEET = Path(__file__).with_name("style.css")


def apply_style() -> None:
    """Send the style sheet; call it once in every run of the script."""
    st.html(SHEET)
