"""Judge each night's runs against earlier nights: a pure function of the database."""
