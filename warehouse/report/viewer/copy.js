// Copy buttons. Without clipboard permission, the text is selected instead.

async function copied(button, text, source) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'copied';
  } catch {
    if (source) window.getSelection().selectAllChildren(source);
    button.textContent = source ? 'selected: press Ctrl+C or ⌘C' : 'copy the address from the address bar';
  }
  setTimeout(() => { button.textContent = button.dataset.label; }, 2000);
}

function startCopying() {
  document.querySelectorAll('button.copy').forEach((button) => {
    const source = button.parentElement.querySelector('pre');
    button.dataset.label = button.textContent;
    button.hidden = false;
    button.addEventListener('click', () => copied(button, source.textContent, source));
  });
}
