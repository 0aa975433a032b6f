"use strict";
(function () {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const read = (id) => document.getElementById(id).textContent;

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }

  async function draw() {
    const colours = JSON.parse(read("dark-colours"));
    const recolour = (_, value) => (dark.matches && Object.hasOwn(colours, value) ? colours[value] : value);
    const drawing = JSON.parse(await unpack(read("drawing")), recolour);
    for (const place of document.querySelectorAll(".zoom")) place.replaceChildren();
    document.body.classList.add("zooming");
    await Bokeh.embed.embed_items(drawing.documents, drawing.places);
    document.dispatchEvent(new Event("steadytrain-drawn"));
  }

  // A browser that cannot do it shows the static drawings.
  function drawOrLeave() {
    draw().catch((reason) => {
      document.body.classList.remove("zooming");
      console.error(reason);
    });
  }

  drawOrLeave();
  dark.addEventListener("change", drawOrLeave);
})();
