"""Load a run folder into the warehouse: staging tables, row conversion, the report on what was loaded."""
