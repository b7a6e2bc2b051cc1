// Tables are sorted by a click on a column head and filtered by words. The
// page is complete without this script.
'use strict';
for (const table of document.querySelectorAll('table.data')) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const given = [...body.rows];
  const compare = (a, b) => {
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y)
      ? a.localeCompare(b, undefined, { numeric: true }) : x - y;
  };
  const sort = (column, sign) => {
    const key = (row) => row.cells[column].dataset.sort;
    // Cells without a number come last in both directions.
    body.append(...[...given].sort((a, b) => {
      const x = key(a), y = key(b);
      if (x === undefined || y === undefined) {
        return (x === undefined) - (y === undefined);
      }
      return sign * compare(x, y);
    }));
  };
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(head.firstChild);
    head.prepend(button);
    button.addEventListener('click', () => {
      const now = head.getAttribute('aria-sort');
      const first = head.classList.contains('number')
        ? 'descending' : 'ascending';
      const other = first === 'ascending' ? 'descending' : 'ascending';
      const next = now === first ? other : first;
      heads.forEach((one) => one.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', next);
      sort(column, next === 'ascending' ? 1 : -1);
    });
  });
  if (given.length < 4) continue;
  const tools = document.createElement('div');
  tools.className = 'tools';
  const input = document.createElement('input');
  input.type = 'search';
  input.placeholder = 'Filter rows';
  input.setAttribute('aria-label', `Filter ${table.caption.textContent}`);
  const count = document.createElement('output');
  tools.append(input, count);
  table.parentElement.before(tools);
  const texts = given.map((row) => row.textContent.toLowerCase());
  input.addEventListener('input', () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    given.forEach((row, at) => {
      row.hidden = !words.every((word) => texts[at].includes(word));
      shown += !row.hidden;
    });
    count.textContent =
      words.length ? `${shown} of ${given.length} rows` : '';
  });
}
