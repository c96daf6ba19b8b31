// Full-text search in this file's traces. One chunk is decompressed at a time, and none is kept.

const SNIPPET = 36;
const MOST_MARKS = 500;

// Yields the searched texts of a trace: steps, candidates, final answer and error.
function* searched(trace) {
  for (const step of trace.steps) {
    yield step.text;
    for (const candidate of step.candidates) if (!candidate.accepted) yield candidate.text;
  }
  if (trace.extracted !== null) yield trace.extracted;
  if (trace.error) yield trace.error;
}

function snippet(text, at, length) {
  const [start, end] = [Math.max(0, at - SNIPPET), at + length + SNIPPET];
  return `${start ? '…' : ''}${text.slice(start, end)}${end < text.length ? '…' : ''}`.replace(/\s+/g, ' ');
}

// Returns a snippet per row of a run whose trace contains the text. progress(done, all) is called for every chunk; if it
// returns false, the search stops and returns null.
async function found(text, run, progress) {
  const wanted = text.toLowerCase();
  const parts = new Map();
  for (const row of run.samples) {
    if (row.chunk >= 0) parts.set(row.chunk, [...parts.get(row.chunk) ?? [], row]);
  }
  const rows = new Map();
  let done = 0;
  for (const [chunk, members] of parts) {
    if (!progress(done, parts.size)) return null;
    const traces = await unpacked(`chunk-${chunk}`);
    for (const row of members) {
      for (const part of searched(traces[`${run.place}/${row.problem}/${row.sample_index}`])) {
        const at = part.toLowerCase().indexOf(wanted);
        if (at < 0) continue;
        rows.set(row, snippet(part, at, wanted.length));
        break;
      }
    }
    done += 1;
  }
  return progress(done, parts.size) ? rows : null;
}

// Highlights the text in an element and opens the collapsed parts around it, without changing the DOM.
function markFound(text, element) {
  if (!CSS.highlights) return;
  CSS.highlights.delete('found');
  if (!text) return;
  const wanted = text.toLowerCase();
  const ranges = [];
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && ranges.length < MOST_MARKS; node = walker.nextNode()) {
    if (!node.parentElement.closest('.prose, .facts code, .error')) continue;
    const content = node.data.toLowerCase();
    for (let at = content.indexOf(wanted); at >= 0; at = content.indexOf(wanted, at + wanted.length)) {
      if (at + wanted.length > node.length) break;
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      ranges.push(range);
      for (let fold = node.parentElement.closest('details'); fold; fold = fold.parentElement.closest('details')) fold.open = true;
    }
  }
  CSS.highlights.set('found', new Highlight(...ranges));
}
