"""How many problems and samples a comparison needs, from the runs of a database: `python -m warehouse.plan`."""
