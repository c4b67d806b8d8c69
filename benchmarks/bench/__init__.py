"""Speed, memory and share of the machine of named cases; `python benchmarks/measure.py` is its command.

A case is registered in `cases` and measured by `measure.measure`. All that is compared across machines or days is
divided by what plain matrix products and convolutions reach in the same minute (`peak`).
"""
