// Buttons that copy. Without the right to use the clipboard, the text is selected for the reader to copy.

async function copied(button, text, source) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'copied';
  } catch {
    if (source) window.getSelection().selectAllChildren(source);
    button.textContent = source ? 'selected: copy it with the keyboard' : 'copy the address of this page';
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
