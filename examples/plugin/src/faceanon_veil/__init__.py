"""A backbone for faceanon."""
