"""Two SQLite files, one writer thread each; every table has one owner module here."""
