"use strict";
// Beside the pointer: which layer, which steps and which value of a heat map it is on.
(function () {
  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  function follow(figure, heat) {
    const cells = figure.querySelector("image.cells");
    const line = figure.querySelector(".readout");
    line.textContent = "Point at a cell for its layer, steps and value.";
    figure.addEventListener("pointermove", (event) => {
      const box = cells.getBoundingClientRect();
      const column = Math.floor(((event.clientX - box.left) / box.width) * (heat.starts.length - 1));
      const row = Math.floor(((event.clientY - box.top) / box.height) * heat.rows.length);
      const text = heat.texts[row]?.[column];
      if (text === undefined) return;
      const first = heat.starts[column], last = heat.starts[column + 1] - 1;
      const steps = first === last ? `step ${first}` : `steps ${first} to ${last}`;
      line.textContent = `${heat.rows[row]}, ${steps}: ${text || "not measured"}`;
    });
  }

  for (const figure of document.querySelectorAll("figure.map")) {
    const data = figure.querySelector("script[type='application/octet-stream']");
    unpack(data.textContent).then((heat) => follow(figure, heat), console.error);
  }
})();
