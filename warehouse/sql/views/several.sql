-- Accuracy over several samples per problem.

CREATE OR REPLACE VIEW pass_at_k AS
SELECT run_id, run.method, run.dataset, own.k, own.n, run.num_problems - own.n AS num_left_out,
    own.estimate AS pass_at_k, run.limited, own.standard_error, own.low_95, own.high_95, own.interval_kind
FROM (FROM counted_estimate WHERE metric = 'pass_at_k') AS own JOIN run USING (run_id);
COMMENT ON VIEW pass_at_k IS 'Mean unbiased pass@k over the n problems with at least k samples that have a result, for every k, as in compare --k, with its 95 % interval over problems. Only these samples count, so k = 1 equals graded_pass_at_1 of the view pass_at_1, not pass_at_1, while samples are missing';

CREATE OR REPLACE VIEW maj_at_k AS
SELECT run_id, run.method, run.dataset, own.k, own.n, run.num_problems - own.n AS num_left_out,
    own.estimate AS maj_at_k, run.limited, own.standard_error, own.low_95, own.high_95, own.interval_kind
FROM (FROM counted_estimate WHERE metric = 'maj_at_k') AS own JOIN run USING (run_id);
COMMENT ON VIEW maj_at_k IS 'Share of the n problems whose most frequent answer over all k samples is right; each of t tied answers counts 1/t, and a sample without an answer does not vote (Wang et al., arXiv 2203.11171). Wrong answers are equal if their strings are. compare --maj uses other k and compares wrong answers with the grader, which can only lower the result. Problems with fewer than k samples with a result are left out';
