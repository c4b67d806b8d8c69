"""The web page of `faceanon demo`: what it does (`desk`), how it looks (`page`), how it is served (`server`)."""
