"""One module per page. Not named ``pages``: Streamlit would take that folder for its older kind of page."""
