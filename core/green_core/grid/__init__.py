"""The carbon signal: where the grid's intensity comes from and what it will be."""
