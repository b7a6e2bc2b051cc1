// KaTeX's own files are put into the site by hooks.py.
for (const place of document.querySelectorAll('.arithmatex')) {
  renderMathInElement(place, {
    delimiters: [
      {left: '\\[', right: '\\]', display: true},
      {left: '\\(', right: '\\)', display: false},
    ],
  });
}
