"use strict";
// Shows the numbers under the pointer: each chart names its table, whose rows know their place in the drawing.
for (const figure of document.querySelectorAll("figure[data-table]")) {
  const svg = figure.querySelector("svg.chart");
  const cursor = svg.querySelector(".cursor");
  const readout = figure.querySelector("output");
  const table = document.getElementById(figure.dataset.table);
  const rows = Array.from(table.tBodies[0].rows);
  const places = rows.map((row) => Number(row.dataset.x));
  const names = Array.from(table.tHead.rows[0].cells, (cell) => cell.textContent);

  // The row whose place is nearest to x; places rise.
  const nearest = (x) => {
    let low = 0;
    let high = places.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (places[middle] + places[middle + 1] < 2 * x) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  const show = (event) => {
    const box = svg.getBoundingClientRect();
    const width = svg.viewBox.baseVal.width;
    const x = ((event.clientX - box.left) * width) / box.width;
    const inside = x >= 0 && x <= width;
    if (!inside || rows.length === 0) return hide();
    const row = rows[nearest(x)];
    const texts = Array.from(row.cells, (cell, column) =>
      column === 0 ? cell.textContent : `${names[column]} ${cell.textContent}`);
    readout.textContent = texts.join("   ");
    cursor.setAttribute("transform", `translate(${row.dataset.x} 0)`);
    cursor.setAttribute("visibility", "visible");
  };
  const hide = () => {
    readout.textContent = "";
    cursor.setAttribute("visibility", "hidden");
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerleave", hide);
}
document.documentElement.dataset.ready = "true";
