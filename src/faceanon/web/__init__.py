"""The web page of `faceanon web`: what it does (`desk`), how it looks (`page`), how it is served (`server`)."""
