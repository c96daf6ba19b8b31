// Shows a chain of thought step by step.

const CALL = [
  'step', 'purpose', 'model', 'n', 'prompt', 'cached', 'output', 'at', 'queued', 'first', 'end', 'in_flight',
];

function pane(place, run, row, siblings, trace, isRendered, choose) {
  const head = el('header', {},
    el('h3', {}, mark(run.place), ` ${run.label}`),
    sampleButtons(row, siblings, choose),
    facts(row, trace));
  const box = el('article', { class: 'pane', 'data-pane': place }, head);
  if (!trace) {
    const why = row.stop_reason === null ? 'This sample has not been run.'
      : 'This trace is omitted to limit the size of the report. To show it from the database, run: ';
    const words = [run.run_id, row.problem_id].map((word) => `'${word.replaceAll("'", `'"'"'`)}'`);
    const command = `python -m warehouse.trace -- ${words.join(' ')} ${row.sample_index}`;
    box.append(el('p', { class: 'missing' }, why, row.stop_reason === null ? null : el('code', {}, command)));
    return box;
  }
  if (trace.error) box.append(el('p', { class: 'error' }, harmless(trace.error)));
  box.append(strip(trace, box), prompts(trace));
  const firstDraft = trace.steps.findIndex((step) => step.decision?.accepted && step.author === 'draft');
  trace.steps.forEach((step, i) => box.append(stepCard(step, i, trace, isRendered, i === firstDraft)));
  const late = trace.calls.filter((call) => call[0] >= trace.steps.length);
  if (late.length) box.append(el('div', { class: 'late' }, 'after the last step', calls(late)));
  return box;
}

// Returns the marker of a run, as in the results table.
function mark(place) {
  return document.querySelector(`table.results [data-run="${place}"] svg`).cloneNode(true);
}

function sampleButtons(row, siblings, choose) {
  return el('div', { class: 'samples', role: 'group', 'aria-label': 'samples of this problem' },
    ...siblings.map((other) => el('button', {
      type: 'button', class: `verdict-${other.verdict}${other.chunk < 0 ? ' untraced' : ''}`,
      'aria-pressed': other === row ? 'true' : 'false',
      title: `sample ${other.sample_index}: ${other.verdict}${other.chunk < 0 ? ', no trace in this file' : ''}`,
      onclick: () => choose(other),
    }, `${other.sample_index} ${VERDICT_MARKS[other.verdict] ?? ''}`)));
}

function facts(row, trace) {
  const rejected = row.num_decisions ? `${row.num_rejected} of ${row.num_decisions} decisions rejected` : 'no decisions';
  return el('p', { class: 'facts' },
    el('b', { class: `badge verdict-${row.verdict}` }, `${VERDICT_MARKS[row.verdict] ?? ''} ${row.verdict}`),
    trace ? el('span', {}, 'answer ', el('code', {}, trace.extracted === null ? 'none' : harmless(trace.extracted))) : null,
    el('span', {}, `stop reason: ${row.stop_reason ?? 'not run'}`),
    el('span', {}, `${row.num_steps} ${row.num_steps === 1 ? 'step' : 'steps'}`), el('span', {}, rejected),
    el('span', {}, `${count(row.emitted_tokens)} tokens emitted, ${count(row.spent_tokens)} spent`),
    el('span', {}, seconds(row.latency_seconds)),
    trace && trace.num_attempts > 1 ? el('span', {}, `${trace.num_attempts} attempts: times not comparable`) : null,
    trace?.detail ? el('span', { class: 'detail' }, `grader: ${harmless(trace.detail)}`) : null);
}

// Shows the whole chain; the width of a step is proportional to its number of tokens.
function strip(trace, box) {
  return el('div', { class: 'strip', role: 'group', 'aria-label': 'steps by length' }, ...trace.steps.map((step, i) => {
    const label = `step ${i}: ${step.role} by ${step.author}, ${step.num_tokens} tokens`;
    const piece = el('button', {
      type: 'button', class: `author ${step.author}${step.decision && !step.decision.accepted ? ' rejected' : ''}`,
      title: label, 'aria-label': label,
      onclick: () => box.querySelector(`[data-step="${i}"]`).scrollIntoView({ block: 'center' }),
    });
    piece.style.flexGrow = Math.max(step.num_tokens, 1);
    return piece;
  }));
}

function prompts(trace) {
  return fold('prompts', ...['draft', 'target'].filter((role) => trace[`${role}_prompt`]).flatMap((role) => [
    el('h4', {}, `${role} prompt`), el('pre', { tabindex: 0 }, harmless(trace[`${role}_prompt`])),
  ]));
}

function stepCard(step, i, trace, isRendered, isFirstDraft) {
  const own = trace.calls.filter((call) => call[0] === i);
  return el('section', { class: `step ${step.author}`, 'data-step': i },
    el('h4', {}, el('span', { class: 'number' }, `${i}`), el('span', { class: `author ${step.author}` }, step.author),
      el('span', {}, step.role), el('span', { class: 'quiet' }, `${step.num_tokens} tokens`),
      el('span', { class: 'quiet' }, `at ${seconds(step.elapsed_seconds)}`),
      step.finish === 'length' && step.role !== 'guidance' ? el('span', { class: 'flag' }, 'truncated at the limit') : null,
      isFirstDraft ? el('span', { class: 'flag' }, 'first accepted draft step') : null,
      step.decision ? el('span', { class: step.decision.accepted ? 'accepted' : 'rejected' }, outcome(step.decision)) : null),
    prose(step.text, isRendered),
    ...step.verdicts.map(verdict),
    step.candidates.length ? candidates(step, isRendered) : null,
    own.length ? fold(`${own.length} ${own.length === 1 ? 'call' : 'calls'}`, calls(own)) : null);
}

function outcome(decision) {
  const label = decision.accepted ? '✔ accepted' : '✘ draft rejected';
  if (decision.kind === 'score' && decision.value !== null) {
    return `${label}, score ${decision.value.toFixed(2)}${decision.threshold === null ? '' : ` (threshold ${decision.threshold})`}`;
  }
  if (decision.kind === 'choice') return label;
  return `${label}: ${harmless(decision.kind)}${comparison(decision)}`;
}

// Formats a decision's value and threshold, with a comparison sign only if it matches the outcome.
function comparison({ value, threshold, accepts_below: isBelow, accepted }) {
  if (value === null) return '';
  if (threshold === null) return ` ${value}`;
  const agrees = (isBelow ? value <= threshold : value >= threshold) === accepted;
  const sign = (isBelow === accepted) ? (accepted ? '≤' : '<') : (accepted ? '≥' : '>');
  return agrees ? ` ${value} ${sign} ${threshold}` : ` ${value} (threshold ${threshold})`;
}

function verdict(given) {
  const bars = given.options.map((option, i) => {
    const share = given.probabilities[i];
    const fill = el('i');
    fill.style.width = `${100 * (share ?? 0)}%`;
    return el('span', { class: `option${i === given.decision ? ' decided' : ''}` },
      el('b', {}, harmless(option)), el('span', { class: 'meter' }, fill), el('span', { class: 'share' }, percent(share)));
  });
  return fold(`verdict by ${given.model}: ${given.kind} of ${given.options.length}, total probability of the options: ${percent(given.mass)}`,
    el('div', { class: 'options' }, ...bars), el('h5', {}, 'question'), el('pre', { tabindex: 0 }, harmless(given.question ?? '')));
}

function candidates(step, isRendered) {
  const choice = step.verdicts.find((given) => given.kind === 'choice');
  const accepted = new Set(step.candidates.filter((one) => one.accepted && one.option !== null).map((one) => one.option));
  const label = (candidate) => {
    if (candidate.accepted) return '✔ accepted';
    if (accepted.has(candidate.option)) return '= same text as the accepted one';
    return step.decision && !step.decision.accepted ? '✘ rejected' : '– not chosen';
  };
  const cards = step.candidates.map((candidate, i) => el('div', { class: `candidate${candidate.accepted ? ' chosen' : ''}` },
    el('h5', {}, `${label(candidate)}: candidate ${i}`,
      candidate.option === null || !choice ? '' : `, option ${harmless(choice.options[candidate.option] ?? String(candidate.option))}`
        + ` (${percent(choice.probabilities[candidate.option])})`,
      `, ${candidate.num_tokens} tokens`,
      candidate.mean_logprob === null ? '' : `, mean log-probability ${candidate.mean_logprob.toFixed(3)}`,
      candidate.finish === 'length' ? ', truncated at the limit' : ''),
    prose(candidate.text, isRendered)));
  return fold(`${cards.length} ${cards.length === 1 ? 'candidate' : 'candidates'}`, ...cards);
}

function calls(list) {
  const columns = ['purpose', 'model', 'n', 'prompt (cached)', 'output', 'start s', 'queued s', 'first token s', 'end s', 'in flight'];
  const row = (call) => {
    const c = Object.fromEntries(CALL.map((name, i) => [name, call[i]]));
    return [c.purpose, c.model, c.n, `${c.prompt} (${c.cached})`, c.output, c.at, c.queued, c.first, c.end, c.in_flight];
  };
  return el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'calls' }, el('table', { class: 'calls' },
    el('thead', {}, el('tr', {}, ...columns.map((name) => el('th', { scope: 'col' }, name)))),
    el('tbody', {}, ...list.map((call) => el('tr', {}, ...row(call).map((cell) => el('td', {}, String(cell ?? '–'))))))));
}

function fold(summary, ...inside) {
  return el('details', {}, el('summary', {}, summary), ...inside);
}
