-- Results of graders and process reward models.

CREATE TABLE grade (
    run_id VARCHAR,
    sample_id VARCHAR,
    grader_version VARCHAR,
    verdict VARCHAR NOT NULL,
    extracted VARCHAR,
    rule VARCHAR,
    detail VARCHAR,
    seconds DOUBLE,
    load_order INTEGER NOT NULL,
    PRIMARY KEY (run_id, sample_id, grader_version)
);
COMMENT ON TABLE grade IS 'Result of one grader version for one sample. Key: run_id, sample_id, grader_version';
COMMENT ON COLUMN grade.verdict IS 'correct, wrong, no_answer, unparsable, truncated, error, grader_timeout or bad_gold';
COMMENT ON COLUMN grade.extracted IS 'The answer as it occurs in the text';
COMMENT ON COLUMN grade.rule IS 'The rule that found the answer';
COMMENT ON COLUMN grade.detail IS 'Reason for the verdict, in one line';
COMMENT ON COLUMN grade.seconds IS 'Time that grading took';
COMMENT ON COLUMN grade.load_order IS 'The highest value is the newest version';

CREATE TABLE candidate_grade (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    candidate_index INTEGER NOT NULL,
    grader_version VARCHAR NOT NULL,
    verdict VARCHAR NOT NULL,
    extracted VARCHAR,
    detail VARCHAR,
    load_order INTEGER NOT NULL
);
COMMENT ON TABLE candidate_grade IS 'Result of one grader version for one candidate that is a whole chain (python -m warehouse.candidates). Key: run_id, sample_id, step_index, candidate_index, grader_version';
COMMENT ON COLUMN candidate_grade.extracted IS 'The answer as it occurs in the candidate';
COMMENT ON COLUMN candidate_grade.load_order IS 'The highest value is the newest version';

CREATE TABLE step_score (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    scorer VARCHAR NOT NULL,
    score DOUBLE,
    missing VARCHAR
);
COMMENT ON TABLE step_score IS 'Quality of one step according to a process reward model, from derived/ in the run folder. Key: run_id, sample_id, step_index, scorer';
COMMENT ON COLUMN step_score.score IS 'From 0 to 1; higher is better. NULL: see missing. A step that ends in the middle of a text step is scored with the text that completes it';
COMMENT ON COLUMN step_score.missing IS 'Why there is no score, for example a judgment longer than the reward model''s context; NULL: scored';

CREATE TABLE candidate_score (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    candidate_index INTEGER NOT NULL,
    scorer VARCHAR NOT NULL,
    score DOUBLE,
    missing VARCHAR
);
COMMENT ON TABLE candidate_score IS 'Quality of one candidate according to a process reward model. Key: run_id, sample_id, step_index, candidate_index, scorer';
COMMENT ON COLUMN candidate_score.score IS 'From 0 to 1; higher is better. NULL: see missing. A candidate after an unfinished step is scored together with that step''s text';
COMMENT ON COLUMN candidate_score.missing IS 'Why there is no score; NULL: scored';
