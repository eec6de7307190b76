"""What tokenwire predicts of measured runs, and a guard that predictions do not move unnoticed; no part of the package."""
