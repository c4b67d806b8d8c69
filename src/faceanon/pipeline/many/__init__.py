"""Many photos at once: threads, folders with a journal, and processes of one or several machines."""
