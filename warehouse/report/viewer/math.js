// Renders formulas in model text with KaTeX. Invalid formulas remain text.

const MOST_FORMULAS = 1500;
const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\u2028\u2029]/gu;
// To keep amounts of money as text, a single dollar opens a formula only before a non-blank character. It closes one only
// after a non-blank character and not before a digit. Formulas cannot contain their own opening bracket (linear time).
const FORMULA = new RegExp(
  [
    String.raw`\\\[((?:(?!\\\[)[\s\S]){1,3000}?)\\\]`,
    String.raw`\\\(((?:(?!\\\()[\s\S]){1,3000}?)\\\)`,
    String.raw`\$\$([\s\S]{1,3000}?)\$\$`,
    String.raw`(\\begin\{(?:equation|align|aligned|gather|cases|array|[bpvB]?matrix)\*?\}[\s\S]{1,3000}?\\end\{[a-zB]{1,12}\*?\})`,
    String.raw`\$(?![\s$])((?:[^$\n\\]|\\[^\n]){1,500}?)(?<!\s)\$(?!\d)`,
    String.raw`(\\boxed\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})`,
  ].join('|'),
  'g',
);

function harmless(text) {
  return text.replace(HIDDEN, (c) => (c === '\n' || c === '\t' ? c : `\\u{${c.codePointAt(0).toString(16)}}`));
}

function prose(text, isRendered) {
  const block = el('div', { class: 'prose' });
  text = text.trimEnd();
  if (!isRendered) {
    block.append(harmless(text));
    return block;
  }
  let end = 0;
  let formulas = 0;
  for (const match of text.matchAll(FORMULA)) {
    if (++formulas > MOST_FORMULAS) break;
    block.append(harmless(text.slice(end, match.index)), formula(match));
    end = match.index + match[0].length;
  }
  block.append(harmless(text.slice(end)));
  return block;
}

function formula(match) {
  const source = match.slice(1).find((group) => group !== undefined);
  const place = el('span', { class: 'formula', title: harmless(match[0]) });
  try {
    katex.render(source, place, {
      displayMode: match[0].startsWith('\\[') || match[0].startsWith('$$') || match[0].startsWith('\\begin'),
      throwOnError: true, strict: 'ignore', trust: false, maxSize: 20, maxExpand: 200,
    });
  } catch {
    place.replaceChildren(harmless(match[0]));
  }
  return place;
}
