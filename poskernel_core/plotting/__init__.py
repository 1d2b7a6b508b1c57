"""Arrays -> Plotly figures. Nothing here knows a question, or imports streamlit."""
