"""How the doctor's history of names and fixes is made, from published wheels and git tags. Run with `python -m`."""
