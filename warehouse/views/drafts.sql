-- How good the drafts are, as graders and process reward models see them.

CREATE OR REPLACE VIEW draft_selection_accuracy AS
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
        any_value(counted.grader_version) AS grader_version,
        bool_or(counted.verdict = 'correct') AS has_correct,
        bool_or(counted.verdict = 'correct' AND candidate.accepted) AS took_correct,
        bool_or(candidate.accepted) AS took_one, count(*) = count(counted.verdict) AS all_graded
    FROM candidate JOIN (SELECT DISTINCT run_id FROM candidate_grade) AS graded USING (run_id)
    LEFT JOIN counted USING (run_id, sample_id, step_index, candidate_index)
    WHERE candidate.option IS NOT NULL GROUP BY ALL
)
SELECT run_id, CASE WHEN has_correct THEN 1 ELSE 2 END AS class,
    CASE WHEN has_correct THEN 'a correct draft existed' ELSE 'all drafts were wrong' END AS meaning,
    count(*) AS num_samples,
    count(*) FILTER (CASE WHEN has_correct THEN took_correct ELSE NOT took_one END) AS num_right,
    num_right / num_samples AS accuracy,
    count(*) FILTER (NOT took_one) AS num_rejected, any_value(grader_version) AS grader_version
FROM offered WHERE all_graded GROUP BY run_id, has_correct;
COMMENT ON VIEW draft_selection_accuracy IS 'SCoT''s selection by class (section 4.4): right is to take a correct draft where one was offered, and to reject all where none was. From grades of the drafts (python -m warehouse.candidates RUN); chains that were cut off were not offered and do not count, nor do samples that failed';

CREATE OR REPLACE VIEW step_quality AS
WITH step_drafts AS (
    SELECT run_id, scorer, sample_id, step_index, count(*) AS num_candidates, sum(score) AS total,
        avg(score) FILTER (accepted) AS selected
    FROM candidate_score JOIN candidate USING (run_id, sample_id, step_index, candidate_index) GROUP BY ALL
), candidate_quality AS (
    SELECT run_id, scorer, sum(num_candidates)::BIGINT AS num_candidates,
        sum(total) / sum(num_candidates) AS draft_quality, count(selected) AS num_selected,
        avg(selected) AS selected_quality, avg(selected - total / num_candidates) AS gain
    FROM step_drafts GROUP BY run_id, scorer
), chain_quality AS (
    SELECT run_id, scorer, count(*) AS num_steps, avg(score) AS step_quality,
        avg(score) FILTER (author = 'draft') AS draft_step_quality,
        avg(score) FILTER (author = 'target') AS target_step_quality,
        avg(score) FILTER (role = 'fallback') AS fallback_quality
    FROM step_score JOIN step USING (run_id, sample_id, step_index) GROUP BY ALL
)
SELECT run_id, scorer, num_candidates, draft_quality, num_selected, selected_quality, gain, num_steps, step_quality, draft_step_quality, target_step_quality,
    fallback_quality
FROM candidate_quality FULL JOIN chain_quality USING (run_id, scorer);
COMMENT ON VIEW step_quality IS 'Mean quality by a process reward model: of all drafts, of the selected ones (SpecCoT, table 5), and of the steps of the chain by author. gain: by how much a selected draft exceeds the mean of the drafts of its own step; drafts of steps where all were refused are not in it. Empty until scores/ holds files (jobs.parts.SCORES)';

CREATE OR REPLACE VIEW score_against_reward AS
SELECT run_id, scorer, least(floor(10 * score), 9) / 10 AS reward_from, count(*) AS num_candidates,
    avg(verdict_score) AS mean_verdict_score, avg(verdict_expected_score) AS mean_expected_score
FROM candidate_score JOIN step USING (run_id, sample_id, step_index)
WHERE verdict_kind = 'score' GROUP BY ALL;
COMMENT ON VIEW score_against_reward IS 'Mean score by the target of the drafts whose reward lies in [reward_from, reward_from + 0.1) (SpecReason, figure 6)';
