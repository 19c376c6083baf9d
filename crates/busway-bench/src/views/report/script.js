// Keeps the choice of lines in the address, and shows the value under the pointer or, on a focused
// chart, the one that the arrow keys reach. The page is whole without it.
(() => {
  const boxes = Array.from(document.querySelectorAll('#lines input'));
  const write = () => {
    const chosen = boxes.filter(box => box.checked).map(box => encodeURIComponent(box.value));
    history.replaceState(null, '', '#lines=' + chosen.join(','));
  };
  const read = () => {
    const [, list] = location.hash.match(/^#lines=(.*)$/) ?? [];
    if (list === undefined) return;
    try {
      const chosen = new Set(list.split(',').map(decodeURIComponent));
      boxes.forEach(box => { box.checked = chosen.has(box.value); });
    } catch { /* An address that somebody mistyped chooses nothing. */ }
  };
  read();
  addEventListener('hashchange', read);
  boxes.forEach(box => box.addEventListener('change', write));
  document.querySelectorAll('#lines button').forEach(button => {
    button.hidden = false;
    button.addEventListener('click', () => {
      const chosen = button.dataset.lines.split(' ');
      boxes.forEach(box => { box.checked = chosen.includes(box.id); });
      write();
    });
  });
  // The choice stays in the address when the reader jumps within the page.
  document.querySelectorAll('nav a').forEach(link => link.addEventListener('click', event => {
    event.preventDefault();
    document.querySelector(link.getAttribute('href')).scrollIntoView();
  }));

  const [left, right, top, bottom] = [110, 424, 10, 244];
  const scales = {
    time: [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']],
    bytes: [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [1024, 'KiB'], [1, 'B']],
    rate: [[1e9, 'GB/s'], [1e6, 'MB/s'], [1e3, 'kB/s'], [1, 'B/s']],
    seconds: [[3600, 'h'], [60, 'min'], [1, 's']],
    percent: [[1, '%']],
    count: [[1, '']],
  };
  const value = (meaning, share) => {
    const [unit, kind, low, high] = meaning.split(' ');
    const at = Number(low) + share * (high - low), plain = kind === 'log' ? 10 ** at : at;
    const [factor, word] = scales[unit].find(([factor]) => plain >= factor * 0.999) ?? scales[unit].at(-1);
    return `${Number((plain / factor).toPrecision(3)).toLocaleString('en')} ${word}`.trim();
  };
  const points = chart => Array.from(chart.querySelectorAll('g.line'))
    .filter(line => getComputedStyle(line).display !== 'none')
    .map(line => [line, (line.querySelector('polyline')?.getAttribute('points') ?? '').split(' ')
      .filter(Boolean).map(point => point.split(',').map(Number))])
    .filter(([, all]) => all.length);
  const show = (chart, line, [x, y]) => {
    let ring = chart.querySelector('.ring'), words = chart.parentElement.querySelector('output');
    if (!words) {
      chart.insertAdjacentHTML('beforeend', '<circle class="ring" r="6"/>');
      chart.insertAdjacentHTML('afterend', '<output></output>');
      ring = chart.querySelector('.ring');
      words = chart.parentElement.querySelector('output');
    }
    ring.setAttribute('cx', x);
    ring.setAttribute('cy', y);
    words.textContent = `${line.dataset.name}: ${value(chart.dataset.x, (x - left) / (right - left))}, `
      + value(chart.dataset.y, (bottom - y) / (bottom - top));
  };
  document.querySelectorAll('svg.chart[data-x]').forEach(chart => {
    chart.tabIndex = 0;
    let at = [0, 0];
    chart.addEventListener('pointermove', event => {
      const frame = chart.getBoundingClientRect(), scale = 460 / frame.width;
      const [x, y] = [(event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale];
      let nearest = Infinity, found;
      points(chart).forEach(([line, all], row) => all.forEach((point, column) => {
        const distance = Math.hypot(point[0] - x, point[1] - y);
        if (distance < nearest) [nearest, found, at] = [distance, [line, point], [row, column]];
      }));
      if (found) show(chart, ...found);
    });
    chart.addEventListener('keydown', event => {
      const [rows, columns] = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key] ?? [];
      const all = points(chart);
      if (rows === undefined || !all.length) return;
      event.preventDefault();
      const row = (at[0] + rows + all.length) % all.length;
      at = [row, Math.max(0, Math.min(at[1] + columns, all[row][1].length - 1))];
      show(chart, all[row][0], all[row][1][at[1]]);
    });
  });
})();
