"""Pages are those of ``st.navigation`` from the first request on.

Streamlit takes the folder ``pages`` next to the script for its older kind of pages until the first
run of ``st.navigation`` says otherwise. It would greet the first reader of a server just started
who follows a link to one of our pages with "Page not found".
"""

from __future__ import annotations

from streamlit.runtime.pages_manager import PagesManager

__all__ = ["leave_folder_alone"]


def leave_folder_alone() -> None:
    """Say in advance what ``st.navigation`` says when it runs."""
    PagesManager.uses_pages_directory = False
