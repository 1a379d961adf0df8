"""What tests share: a clock that does as it is told, databases in a temporary folder."""
