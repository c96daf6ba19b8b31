-- Quality of the drafts according to graders and process reward models.

CREATE OR REPLACE VIEW sample_selection AS
WITH version AS (
    SELECT run_id, grader_version,
        row_number() OVER (PARTITION BY run_id ORDER BY max(load_order) DESC, grader_version DESC) = 1 AS is_newest
    FROM candidate_grade GROUP BY run_id, grader_version
), counted AS (
    SELECT candidate_grade.* FROM candidate_grade JOIN version USING (run_id, grader_version)
    WHERE CASE WHEN getvariable('grader_version') IS NULL THEN is_newest
        ELSE grader_version = getvariable('grader_version') END
), offered AS (
    SELECT candidate.run_id, candidate.sample_id, candidate.step_index,
        count(DISTINCT candidate.option) AS num_offered,
        count(DISTINCT candidate.option) FILTER (counted.verdict = 'correct') AS num_correct,
        any_value(counted.grader_version) AS grader_version,
        bool_or(counted.verdict = 'correct') AS has_correct,
        bool_or(counted.verdict = 'correct' AND candidate.accepted) AS took_correct,
        bool_or(candidate.accepted) AS took_one, count(*) = count(counted.verdict) AS all_graded
    FROM candidate JOIN (SELECT DISTINCT run_id FROM candidate_grade) AS graded USING (run_id)
    LEFT JOIN counted USING (run_id, sample_id, step_index, candidate_index)
    WHERE candidate.option IS NOT NULL GROUP BY ALL
)
SELECT run_id, sample_id, CASE WHEN has_correct THEN 1 ELSE 2 END AS class,
    CASE WHEN has_correct THEN took_correct ELSE NOT took_one END AS is_right, NOT took_one AS rejected,
    num_offered, num_correct, grader_version
FROM offered WHERE all_graded;
COMMENT ON VIEW sample_selection IS 'SCoT''s selection for each sample (section 4.4). class 1: a correct draft was offered; class 2: none was. is_right: a correct draft was selected (class 1), or all were rejected (class 2). Requires grades of the drafts (python -m warehouse.candidates RUN). Truncated chains were not offered and do not count; failed samples do not count either';

CREATE OR REPLACE VIEW draft_selection_accuracy AS
SELECT run_id, class,
    CASE class WHEN 1 THEN 'a correct draft existed' ELSE 'all drafts were wrong' END AS meaning,
    count(*) AS num_samples, count(*) FILTER (is_right) AS num_right, num_right / num_samples AS accuracy,
    count(*) FILTER (rejected) AS num_rejected,
    avg(num_correct / num_offered) AS accuracy_of_any_draft,
    any_value(grader_version) AS grader_version
FROM sample_selection GROUP BY run_id, class;
COMMENT ON VIEW draft_selection_accuracy IS 'Accuracy of SCoT''s selection by class (section 4.4): it is right to select a correct draft if one was offered (class 1), and to reject all drafts otherwise (class 2). accuracy_of_any_draft: accuracy of a random draft. Requires grades of the drafts (python -m warehouse.candidates RUN). Truncated chains were not offered and do not count; failed samples do not count either';

CREATE OR REPLACE VIEW step_quality AS
WITH step_drafts AS (
    SELECT run_id, scorer, sample_id, step_index, count(score) AS num_candidates, sum(score) AS total,
        avg(score) FILTER (accepted) AS selected, count(*) - count(score) AS num_missing
    FROM candidate_score JOIN candidate USING (run_id, sample_id, step_index, candidate_index) GROUP BY ALL
), candidate_quality AS (
    SELECT run_id, scorer, sum(num_candidates)::BIGINT AS num_candidates,
        sum(total) / nullif(sum(num_candidates), 0) AS draft_quality, count(selected) AS num_selected,
        avg(selected) AS selected_quality, avg(selected - total / nullif(num_candidates, 0)) AS gain,
        sum(num_missing)::BIGINT AS num_missing_candidates
    FROM step_drafts GROUP BY run_id, scorer
), chain_quality AS (
    SELECT run_id, scorer, count(score) AS num_steps, avg(score) AS step_quality,
        count(*) - count(score) AS num_missing_steps,
        avg(score) FILTER (author = 'draft') AS draft_step_quality,
        avg(score) FILTER (author = 'target') AS target_step_quality,
        avg(score) FILTER (role = 'fallback') AS fallback_quality
    FROM step_score JOIN step USING (run_id, sample_id, step_index) GROUP BY ALL
)
SELECT run_id, scorer, num_candidates, draft_quality, num_selected, selected_quality, gain, num_steps, step_quality, draft_step_quality, target_step_quality,
    fallback_quality, coalesce(num_missing_candidates, 0) AS num_missing_candidates,
    coalesce(num_missing_steps, 0) AS num_missing_steps
FROM candidate_quality FULL JOIN chain_quality USING (run_id, scorer);
COMMENT ON VIEW step_quality IS 'Mean quality according to a process reward model: of all drafts, of the selected drafts (SpecCoT, table 5), and of the steps of the chain by author. gain: mean difference between a selected draft and the mean of all drafts of its step; steps whose drafts were all rejected are left out. Candidates and steps without a score are counted separately and excluded from means; candidate_score.missing and step_score.missing have the reasons. Empty without score files in derived/ (jobs.run.trace_files.SCORES)';
