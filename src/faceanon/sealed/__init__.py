"""The way back as a code beside the picture: latents to few bytes (`coder`), and those encrypted (`envelope`)."""
