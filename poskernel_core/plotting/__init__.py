"""Arrays -> Plotly figures, independent of questions and of streamlit."""
