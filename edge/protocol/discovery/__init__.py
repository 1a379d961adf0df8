"""What devices announce about themselves: pure parsers, one record for every convention."""
