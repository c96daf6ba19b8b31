// The viewer's state and its event handlers.

const form = document.getElementById('filters');
const $ = (id) => document.getElementById(id);
let runs = [];
let problems = [];
let shown = [];
let limit = PAGE;
let current = { row: null, beside: null };

function state() {
  const values = Object.fromEntries(new FormData(form));
  return { ...values, traced: form.elements.traced.checked, math: form.elements.math.checked };
}

// Updates the list after a change of the filters; the open sample stays open if it passes them.
function relist({ again = false } = {}) {
  shown = listed(state(), runs, problems);
  limit = PAGE;
  const stays = shown.includes(current.row);
  if (stays && !again) return paint();
  const samePlace = (row) => row.problem === current.row?.problem && row.sample_index === current.row?.sample_index;
  return shown.length ? choose(shown.find(samePlace) ?? shown[0]) : clear();
}

function paint() {
  const page = shown.slice(0, limit);
  $('list').replaceChildren(...page.map((row) =>
    listItem(row, problems[row.problem], row === current.row, () => choose(row))));
  const all = runs[state().first].samples.length;
  $('count').textContent = `${count(shown.length)} of ${count(all)} samples`;
  $('more').hidden = shown.length <= limit;
}

function clear() {
  paint();
  current = { row: null, beside: null };
  $('problem').replaceChildren('No samples match these filters.');
  $('panes').replaceChildren();
}

async function choose(row, beside = null) {
  const { second, between: difference } = state();
  current = { row, beside: second === '' ? null : beside ?? partner(row, runs[second], difference) };
  if (shown.indexOf(row) >= limit) limit = shown.indexOf(row) + PAGE;
  paint();
  reveal(document.querySelector('#list [aria-current="true"]'));
  await read();
}

// Scrolls only the list: scrollIntoView would also scroll the page, which opens at its top.
function reveal(item) {
  if (!item) return;
  const [box, { top, bottom }] = [item.closest('.list'), item.getBoundingClientRect()];
  const frame = box.getBoundingClientRect();
  box.scrollTop += Math.min(0, top - frame.top) + Math.max(0, bottom - frame.bottom);
}

async function read() {
  const { first, second, math } = state();
  const { row, beside } = current;
  if (!row) return;
  const pairs = [[Number(first), row], ...(beside ? [[Number(second), beside]] : [])];
  const traces = await Promise.all(pairs.map(([run, sample]) => traceOf(run, sample)));
  if (current.row !== row || current.beside !== beside) return;
  $('problem').replaceChildren(...problemText(problems[row.problem], math));
  $('panes').replaceChildren(...pairs.map(([run, sample], i) => {
    const siblings = runs[run].samples.filter((other) => other.problem === row.problem);
    const open = i === 0 ? (other) => choose(other, beside) : (other) => choose(row, other);
    return pane(i, runs[run], sample, siblings, traces[i], math, open);
  }));
}

function problemText(problem, math) {
  const where = [problem.problem_id, problem.subject, problem.level && `level ${problem.level}`].filter(Boolean);
  return [
    el('h3', {}, where.join(' · ')), prose(problem.text, math),
    problem.choices?.length ? el('ol', { type: 'A' }, ...problem.choices.map((c) => el('li', {}, prose(c, math)))) : null,
    el('p', { class: 'gold' }, 'gold answer ', el('code', {}, harmless(problem.answer))),
  ].filter(Boolean);
}

function go(by) {
  const place = shown.indexOf(current.row) + by;
  if (place >= 0 && place < shown.length) choose(shown[place]);
}

function options(select, entries) {
  select.replaceChildren(...entries.map(([value, label]) => el('option', { value }, label)));
}

function verdictOptions() {
  const verdicts = [...new Set(runs[state().first].samples.map((row) => row.verdict))].sort();
  const before = form.elements.verdict.value;
  options(form.elements.verdict, [['', 'any'], ...verdicts.map((v) => [v, v])]);
  form.elements.verdict.value = verdicts.includes(before) ? before : '';
}

function flip(button) {
  const { first, second, side } = button.dataset;
  form.reset();
  Object.assign(form.elements.first, { value: first });
  Object.assign(form.elements.second, { value: second });
  verdictOptions();
  form.elements.between.value = side;
  relist({ again: true });
  $('traces').scrollIntoView();
}

async function start() {
  const index = await unpacked('index');
  problems = index.problems;
  runs = index.runs.map((run, place) => {
    const samples = rowsOf(index.samples[place]);
    for (const row of samples) {
      row.problem_id = problems[row.problem].problem_id;
      if (row.verdict === 'not_run' && row.stop_reason !== null) row.verdict = 'not_graded';
    }
    const byPlace = new Map(samples.map((row) => [`${row.problem}/${row.sample_index}`, row]));
    return { ...run, place, samples, byPlace, scores: scores(samples) };
  });
  const names = runs.map((run, i) => [String(i), run.label]);
  options(form.elements.first, names);
  options(form.elements.second, [['', 'nothing'], ...names]);
  const traced = runs.findIndex((run) => run.samples.some((row) => row.chunk >= 0));
  form.elements.first.value = String(Math.max(traced, 0));
  verdictOptions();
  $('desk').hidden = false;
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('input', (event) => {
    if (event.target.name === 'math') return read();
    if (event.target.name === 'first') verdictOptions();
    return relist({ again: ['second', 'between'].includes(event.target.name) });
  });
  $('more').addEventListener('click', () => { limit += PAGE; paint(); });
  $('previous').addEventListener('click', () => go(-1));
  $('next').addEventListener('click', () => go(1));
  document.addEventListener('keydown', (event) => {
    if (event.target.closest('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'j') go(1);
    if (event.key === 'k') go(-1);
  });
  document.querySelectorAll('button.flip').forEach((button) => button.addEventListener('click', () => flip(button)));
  await relist();
  document.documentElement.dataset.ready = 'true';
}

start();
