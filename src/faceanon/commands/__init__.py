"""The commands of `faceanon`, one a file; files with an underscore are what several of them share."""
