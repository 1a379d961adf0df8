"""Do it: one module per area. Areas reach each other through dispatch, an event or a log, never by import."""
