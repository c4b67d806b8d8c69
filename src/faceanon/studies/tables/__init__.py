"""The study of the papers' tables: what they print beside what is measured here."""
