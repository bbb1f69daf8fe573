"""Results on the screen and on disk: pictures, a page, tables and motion files."""
