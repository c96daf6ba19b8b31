// The list of samples: filters and order.

const PAGE = 200;

// Returns a run's share of correct samples per problem, over graded samples.
function scores(samples) {
  const sums = new Map();
  for (const row of samples) {
    if (!row.graded) continue;
    const sum = sums.get(row.problem) ?? { right: 0, all: 0 };
    sum.right += row.verdict === 'correct';
    sum.all += 1;
    sums.set(row.problem, sum);
  }
  return new Map([...sums].map(([problem, sum]) => [problem, sum.right / sum.all]));
}

const REJECTED = {
  none: (row) => row.num_decisions > 0 && row.num_rejected === 0,
  some: (row) => row.num_rejected > 0,
  half: (row) => row.num_decisions > 0 && 2 * row.num_rejected >= row.num_decisions,
};
const ORDERS = {
  longest: (a, b) => b.emitted_tokens - a.emitted_tokens,
  slowest: (a, b) => (b.latency_seconds ?? -1) - (a.latency_seconds ?? -1),
  rejected: (a, b) => b.num_rejected / (b.num_decisions || 1) - a.num_rejected / (a.num_decisions || 1),
};

function listed(state, runs, problems) {
  const first = runs[state.first];
  const second = state.second === '' ? null : runs[state.second];
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = new Set(problems.keys());
  if (words.length) {
    problems.forEach((problem, i) => {
      const text = `${problem.problem_id} ${problem.text}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) matching.delete(i);
    });
  }
  const low = state.shortest === '' ? 0 : Number(state.shortest);
  const high = state.longest === '' ? Infinity : Number(state.longest);
  const passing = first.samples.filter((row) => matching.has(row.problem)
    && (!state.verdict || row.verdict === state.verdict)
    && (!state.fallback || REJECTED[state.fallback](row))
    && row.emitted_tokens >= low && row.emitted_tokens <= high
    && (!state.traced || row.chunk >= 0)
    && (!state.matching || state.matching.has(row))
    && (!state.between || (second && between(state.between, row, first, second))));
  return state.order ? passing.sort(ORDERS[state.order]) : passing;
}

// Returns whether a sample has the selected difference between the two runs.
function between(difference, row, first, second) {
  if (difference === 'unlike') {
    const other = second.byPlace.get(`${row.problem}/${row.sample_index}`);
    return other !== undefined && other.verdict !== row.verdict;
  }
  const firstScore = first.scores.get(row.problem);
  const secondScore = second.scores.get(row.problem);
  if (firstScore === undefined || secondScore === undefined) return false;
  const rightFirst = difference === '1';
  const flipped = rightFirst ? firstScore > 0.5 && secondScore < 0.5 : firstScore < 0.5 && secondScore > 0.5;
  return flipped && row.graded && (row.verdict === 'correct') === rightFirst;
}

// Returns the comparison sample: for a flip, one with the opposite outcome; otherwise the same sample index.
function partner(row, second, difference) {
  const same = second.samples.filter((other) => other.problem === row.problem);
  if (difference === '1' || difference === '2') {
    const other = same.filter((s) => s.graded && (s.verdict === 'correct') === (difference === '2'));
    const traced = other.find((s) => s.chunk >= 0) ?? other[0];
    if (traced) return traced;
  }
  return same.find((other) => other.sample_index === row.sample_index) ?? same[0] ?? null;
}

function listItem(row, problem, isCurrent, open, snippet) {
  const rejected = row.num_decisions ? `${row.num_rejected}/${row.num_decisions} rejected` : '';
  return el('li', {}, el('button', { type: 'button', 'aria-current': isCurrent ? 'true' : 'false', onclick: open },
    el('span', { class: `mark verdict-${row.verdict}`, title: row.verdict }, VERDICT_MARKS[row.verdict] ?? '?'),
    el('span', { class: 'what' }, `${problem.problem_id} · ${row.sample_index}`),
    el('span', { class: 'quiet' }, [`${count(row.emitted_tokens)} tokens`, rejected, seconds(row.latency_seconds)].filter(Boolean).join(' · ')),
    snippet === undefined ? null : el('span', { class: 'snippet' }, harmless(snippet))));
}
