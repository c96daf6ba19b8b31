-- Of the warehouse's first schema: the tables that a load of today looks at to see what it has before it.
CREATE TABLE schema_version (tables_hash VARCHAR NOT NULL, views_hash VARCHAR NOT NULL);
CREATE TABLE run (
    run_id VARCHAR PRIMARY KEY, spec_id VARCHAR, folder VARCHAR NOT NULL, method VARCHAR, params JSON, dataset VARCHAR
);
CREATE TABLE step (run_id VARCHAR, sample_id VARCHAR, step_index INTEGER, text VARCHAR);
