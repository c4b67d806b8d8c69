"""Tables, image sheets, plots, one HTML page."""
