// Loads the page's data: JSON, compressed with gzip, as base64 in inert elements; decompressed on demand.

const VERDICT_MARKS = {
  correct: '✔', wrong: '✘', truncated: '…', no_answer: '∅', unparsable: '?', error: '!', grader_timeout: '⏱',
  bad_gold: '⚑', not_run: '·',
  not_graded: '○',
};
const CHUNKS_KEPT = 12;
const chunks = new Map();

async function unpacked(id) {
  const packed = atob(document.getElementById(id).textContent.trim());
  const bytes = Uint8Array.from(packed, (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(stream).text());
}

async function traceOf(run, row) {
  if (row.chunk < 0) return null;
  if (!chunks.has(row.chunk)) {
    if (chunks.size >= CHUNKS_KEPT) chunks.delete(chunks.keys().next().value);
    chunks.set(row.chunk, unpacked(`chunk-${row.chunk}`));
  }
  const traces = await chunks.get(row.chunk);
  return traces[`${run}/${row.problem}/${row.sample_index}`] ?? null;
}

function rowsOf(columns) {
  const names = Object.keys(columns);
  return columns.problem.map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
}

// Creates an element. String children become text nodes, never markup, with control and direction characters as escapes.
function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? '' : harmless(String(value)));
  }
  const shown = children.filter((child) => child !== null && child !== undefined);
  element.append(...shown.map((child) => (typeof child === 'string' ? harmless(child) : child)));
  return element;
}

const percent = (share) => (share === null || share === undefined ? '–' : `${(100 * share).toFixed(1)} %`);
const seconds = (value) => (value === null || value === undefined ? '–' : `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} s`);
const count = (value) => value.toLocaleString('en');
