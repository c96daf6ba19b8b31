// The viewer's state and its event handlers.

const form = document.getElementById('filters');
const $ = (id) => document.getElementById(id);
const TYPING_PAUSE_MS = 300;
const FILTERS = ['search', 'words', 'verdict', 'fallback', 'shortest', 'longest', 'between', 'order', 'traced'];
let runs = [];
let problems = [];
let shown = [];
let limit = PAGE;
let current = { row: null, beside: null };
let matching = null; // snippet by row whose trace contains the words; null: no search
let typing = 0;

function state() {
  const values = Object.fromEntries(new FormData(form));
  values.between ??= ''; // a disabled field has no value
  return { ...values, traced: form.elements.traced.checked, math: form.elements.math.checked, matching };
}

// Updates the list after a filter change; the open sample stays open if it matches.
function relist({ again = false } = {}) {
  shown = listed(state(), runs, problems);
  limit = PAGE;
  $('unfilter').disabled = !isFiltered();
  const stays = shown.includes(current.row);
  if (stays && !again) {
    paint();
    return read();
  }
  const samePlace = (row) => row.problem === current.row?.problem && row.sample_index === current.row?.sample_index;
  return shown.length ? choose(shown.find(samePlace) ?? shown[0], null, 'replaced') : clear();
}

function isFiltered() {
  return FILTERS.some((name) => {
    const field = form.elements[name];
    return field.type === 'checkbox' ? field.checked !== field.defaultChecked : field.value !== '';
  });
}

function resetFilters() {
  for (const name of FILTERS) {
    const field = form.elements[name];
    if (field.type === 'checkbox') field.checked = field.defaultChecked;
    else field.value = '';
  }
  search();
}

function paint() {
  const page = shown.slice(0, limit);
  $('list').replaceChildren(...page.map((row) => listItem(
    row, problems[row.problem], row === current.row, () => choose(row, null, 'added'), matching?.get(row))));
  const all = runs[state().first].samples.length;
  $('count').textContent = `${count(shown.length)} of ${count(all)} samples`;
  $('more').hidden = shown.length <= limit;
}

function clear() {
  current = { row: null, beside: null };
  paint();
  $('problem').replaceChildren(el('p', {}, 'No samples match these filters. '),
    el('button', { type: 'button', onclick: () => { resetFilters(); relist(); } }, 'reset filters'));
  $('panes').replaceChildren();
  $('address').hidden = true;
}

// Shows a sample. address: whether its URL is 'added' to the history, 'replaced' in it, or 'kept'.
async function choose(row, beside, address) {
  const { first, second, between: difference } = state();
  current = { row, beside: second === '' ? null : beside ?? partner(row, runs[second], difference) };
  if (shown.indexOf(row) >= limit) limit = shown.indexOf(row) + PAGE;
  const link = linkTo(runs[first], row, runs[second], current.beside);
  $('address').hidden = false;
  $('address').querySelector('a').setAttribute('href', link);
  if (address === 'added' && link !== location.hash) history.pushState(null, '', link);
  if (address === 'replaced') history.replaceState(null, '', link);
  paint();
  reveal(document.querySelector('#list [aria-current="true"]'), '.list');
  await read();
}

// Shows the sample in the page's URL. Filters that would hide it are reset.
async function follow() {
  const link = linked(location.hash, runs);
  if (!link) return false;
  const second = link.second ? String(link.second.place) : '';
  const isShown = link.first.row === current.row && (link.second?.row ?? null) === current.beside;
  if (isShown && form.elements.first.value === String(link.first.place)) return true;
  form.elements.first.value = String(link.first.place);
  form.elements.second.value = second;
  runsChanged();
  await search();
  shown = listed(state(), runs, problems);
  if (!shown.includes(link.first.row)) {
    resetFilters();
    form.elements.traced.checked = link.first.row.chunk >= 0;
    shown = listed(state(), runs, problems);
  }
  $('unfilter').disabled = !isFiltered();
  await choose(link.first.row, link.second?.row ?? null, 'kept');
  return true;
}

// Scrolls only the box; scrollIntoView would also scroll the page.
function reveal(item, frameOf) {
  if (!item) return;
  const [box, { top, bottom }] = [item.closest(frameOf), item.getBoundingClientRect()];
  const frame = box.getBoundingClientRect();
  box.scrollTop += Math.min(0, top - frame.top) + Math.max(0, bottom - frame.bottom);
}

async function read() {
  const { first, second, math, words } = state();
  const { row, beside } = current;
  if (!row) return;
  const pairs = [[Number(first), row], ...(beside ? [[Number(second), beside]] : [])];
  const traces = await Promise.all(pairs.map(([run, sample]) => traceOf(run, sample)));
  if (current.row !== row || current.beside !== beside) return;
  $('problem').replaceChildren(...problemText(problems[row.problem], math));
  $('panes').replaceChildren(...pairs.map(([run, sample], i) => {
    const siblings = runs[run].samples.filter((other) => other.problem === row.problem);
    const open = i === 0 ? (other) => choose(other, beside, 'added') : (other) => choose(row, other, 'added');
    return pane(i, runs[run], sample, siblings, traces[i], math, open);
  }));
  markFound(words.trim(), $('panes'));
}

function problemText(problem, math) {
  const where = [problem.problem_id, problem.subject, problem.level && `level ${problem.level}`].filter(Boolean);
  return [
    el('h3', {}, where.join(' · ')), prose(problem.text, math),
    problem.choices?.length ? el('ol', { type: 'A' }, ...problem.choices.map((c) => el('li', {}, prose(c, math)))) : null,
    el('p', { class: 'gold' }, 'gold answer ', el('code', {}, harmless(problem.answer))),
  ].filter(Boolean);
}

// Finds samples of the first run whose traces contain the words; a newer search cancels an older one.
async function search() {
  const own = ++typing;
  const text = form.elements.words.value.trim();
  const run = runs[form.elements.first.value];
  matching = null;
  $('searched').textContent = '';
  if (!text) return true;
  const progress = (done, all) => {
    if (own === typing) $('searched').textContent = `searching: ${done} of ${all} chunks of this file`;
    return own === typing;
  };
  const rows = await found(text, run, progress);
  if (rows === null) return false;
  const all = run.samples.filter((row) => row.chunk >= 0).length;
  matching = rows;
  $('searched').textContent = `in ${count(rows.size)} of the ${count(all)} traces of ${harmless(run.label)} in this file`;
  return true;
}

async function searchAndList(options) {
  if (await search()) await relist(options);
}

function go(by) {
  const place = shown.indexOf(current.row) + by;
  if (place >= 0 && place < shown.length) choose(shown[place], null, 'added');
}

function options(select, entries) {
  select.replaceChildren(...entries.map(([value, label]) => el('option', { value }, label)));
}

// Updates the controls that depend on the selected runs, and resets the filter by difference.
function runsChanged() {
  const verdicts = [...new Set(runs[form.elements.first.value].samples.map((row) => row.verdict))].sort();
  const before = form.elements.verdict.value;
  options(form.elements.verdict, [['', 'any'], ...verdicts.map((v) => [v, v])]);
  form.elements.verdict.value = verdicts.includes(before) ? before : '';
  form.elements.between.value = '';
  form.elements.between.disabled = form.elements.second.value === '';
}

function changed(event) {
  const { name } = event.target;
  if (name === 'math') return read();
  const again = ['first', 'second', 'between'].includes(name);
  if (name === 'first' || name === 'second') runsChanged();
  if (name === 'first' && form.elements.words.value) return searchAndList({ again });
  if (name !== 'words') return relist({ again });
  const own = ++typing;
  return setTimeout(() => own === typing && searchAndList(), TYPING_PAUSE_MS);
}

function listen() {
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('input', changed);
  $('unfilter').addEventListener('click', () => { resetFilters(); relist(); });
  $('more').addEventListener('click', () => { limit += PAGE; paint(); });
  $('previous').addEventListener('click', () => go(-1));
  $('next').addEventListener('click', () => go(1));
  const copy = $('address').querySelector('button');
  copy.dataset.label = copy.textContent;
  copy.addEventListener('click', () => copied(copy, $('address').querySelector('a').href, null));
  document.addEventListener('keydown', (event) => {
    if (event.target.closest('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'j') go(1);
    if (event.key === 'k') go(-1);
  });
  window.addEventListener('popstate', async () => {
    if (!await follow() && location.hash === '') choose(opening(), null, 'kept');
  });
}

// Returns the initial sample: one with a rejected step, if possible.
function opening() {
  return shown.find(REJECTED.some) ?? shown[0];
}

async function start() {
  startTabs();
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
  const having = (test) => runs.findIndex((run) => run.samples.some((row) => row.chunk >= 0 && test(row)));
  form.elements.first.value = String(Math.max(having(REJECTED.some), having(() => true), 0));
  runsChanged();
  $('desk').hidden = false;
  startSorting();
  startCopying();
  listen();
  if (await follow()) {
    $('traces').scrollIntoView();
  } else {
    shown = listed(state(), runs, problems);
    $('unfilter').disabled = true;
    await (shown.length ? choose(opening(), null, 'kept') : clear());
    reveal(document.querySelector('.step:has(.rejected)'), '.reading');
  }
  document.documentElement.dataset.ready = 'true';
}

start();
