"""Plans as people read them: sentences, tables, workbooks."""
