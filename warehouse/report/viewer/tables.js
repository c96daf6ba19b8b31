// Sortable tables: a click on a column header sorts ascending, then descending, then restores the order.

const WORDS = new Intl.Collator('en', { numeric: true });

// Returns the leading number of a cell, e.g. of '−2.5 to 3.1', '<0.0001' or '1,270'; null for other text.
function leadingNumber(text) {
  const match = /^[<≥×]?\s*([+-]?\d+(?:\.\d+)?)/.exec(text.replaceAll('−', '-').replaceAll(',', ''));
  return match ? Number(match[1]) : null;
}

// Returns a comparison function for a column. Empty cells sort last in both directions.
function byColumn(rows, column, sign) {
  const texts = new Map(rows.map((row) => [row, row.cells[column].textContent.trim()]));
  const isEmpty = (row) => ['', '–'].includes(texts.get(row));
  const isNumeric = rows.every((row) => isEmpty(row) || leadingNumber(texts.get(row)) !== null);
  const compare = isNumeric ? (a, b) => leadingNumber(a) - leadingNumber(b) : WORDS.compare;
  return (a, b) => (isEmpty(a) || isEmpty(b) ? isEmpty(a) - isEmpty(b) : sign * compare(texts.get(a), texts.get(b)));
}

function startSorting() {
  document.querySelectorAll('table.sortable').forEach((table) => {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = el('button', { type: 'button', class: 'sort' }, ...head.childNodes);
      head.replaceChildren(button);
      button.addEventListener('click', () => {
        const next = { ascending: 'descending', descending: null }[head.getAttribute('aria-sort')];
        const order = next === undefined ? 'ascending' : next;
        heads.forEach((other) => other.removeAttribute('aria-sort'));
        if (order) head.setAttribute('aria-sort', order);
        body.append(...(order ? [...original].sort(byColumn(original, column, order === 'ascending' ? 1 : -1)) : original));
      });
    });
  });
}
