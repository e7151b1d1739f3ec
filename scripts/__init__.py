"""How the doctor's history of names is made, and of who uses them, from published wheels. Run with `python -m`."""
