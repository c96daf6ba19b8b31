// Trace addresses: the URL fragment identifies the sample and the comparison sample.

const LINK_KEYS = ['trace', 'problem', 'sample', 'with', 'other'];

function linkTo(run, row, second, beside) {
  const values = { trace: run.run_id, problem: row.problem_id, sample: row.sample_index };
  if (second && beside) Object.assign(values, { with: second.run_id, other: beside.sample_index });
  return `#${new URLSearchParams(values)}`;
}

// Returns the runs and samples in a URL fragment, or null if it has no sample of this page.
function linked(hash, runs) {
  const values = new URLSearchParams(hash.slice(1));
  const [run, problem, sample, second, other] = LINK_KEYS.map((key) => values.get(key));
  const find = (id, index) => {
    const found = runs.find((candidate) => candidate.run_id === id);
    const row = found?.samples.find((r) => r.problem_id === problem && String(r.sample_index) === index);
    return row ? { place: found.place, row } : null;
  };
  const first = find(run, sample);
  return first ? { first, second: second === null ? null : find(second, other) } : null;
}
