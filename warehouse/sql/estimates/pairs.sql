-- Pairs of runs whose times are compared. Pairs affected by the loaded runs go to new_pair, and their rows are deleted.

CREATE OR REPLACE TEMP TABLE pair AS
SELECT DISTINCT run_id, baseline_run_id, own.repeats, base.repeats AS repeats_of_baseline
FROM comparable_baseline JOIN run_repeats AS own USING (run_id)
JOIN run_repeats AS base ON base.run_id = baseline_run_id;
CREATE OR REPLACE TEMP TABLE new_pair AS
FROM pair WHERE list_has_any(repeats, $loaded) OR list_has_any(repeats_of_baseline, $loaded)
    OR pair NOT IN (SELECT timed_pair FROM timed_pair);
DELETE FROM timed_pair WHERE (run_id, baseline_run_id) NOT IN (SELECT (run_id, baseline_run_id) FROM pair)
    OR (run_id, baseline_run_id) IN (SELECT (run_id, baseline_run_id) FROM new_pair);
DELETE FROM estimate WHERE baseline_run_id IS NOT NULL AND measure <> 'distance_from_target'
    AND (run_id, baseline_run_id) NOT IN (SELECT (run_id, baseline_run_id) FROM timed_pair);
DELETE FROM interval WHERE estimate NOT IN (SELECT id FROM estimate);
INSERT INTO timed_pair FROM new_pair
