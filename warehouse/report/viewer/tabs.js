// Tabs for charts of runs with different conditions. Without this script, and in print, all charts are shown.

function startTabs() {
  document.querySelectorAll('.tabs').forEach((box) => {
    const [bar, ...panels] = box.children;
    const show = () => bar.querySelectorAll('input').forEach((input, i) => { panels[i].hidden = !input.checked; });
    bar.hidden = panels.length < 2;
    bar.addEventListener('change', show);
    show();
  });
}
