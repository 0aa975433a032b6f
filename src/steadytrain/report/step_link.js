"use strict";
// "#step-119" in the address opens the curves there: a line at the step, and the steps around it.
(function () {
  const ASKED = /^#step-(\d{1,15})$/;
  const AROUND_SHARE = 0.1, AROUND_MIN = 16;
  const curves = document.getElementById("curves");
  const field = document.getElementById("step-field");
  const said = document.getElementById("step-said");
  const [first, last] = [Number(curves.dataset.first), Number(curves.dataset.last)];

  function inStatic(step) {
    for (const drawing of curves.querySelectorAll("svg[data-left]")) {
      drawing.querySelector(".asked")?.remove();
      if (step === null) continue;
      const [from, to, left, right, low, high] = ["first", "last", "left", "right", "bottom", "top"].map((name) => Number(drawing.dataset[name]));
      const x = to > from ? left + ((step - from) / (to - from)) * (right - left) : (left + right) / 2;
      const mark = document.createElementNS("http://www.w3.org/2000/svg", "line");
      for (const [name, value] of Object.entries({ class: "asked", x1: x, x2: x, y1: high, y2: low })) mark.setAttribute(name, value);
      drawing.append(mark);
    }
  }

  function inZoom(step) {
    const figures = (window.Bokeh?.documents || []).flatMap((one) => one.roots());
    for (const figure of figures) {
      for (const mark of figure.center.filter((one) => one.name === "asked-step")) {
        mark.visible = step !== null;
        if (step !== null) mark.location = step;
      }
    }
    if (!figures.length) return;
    const around = Math.max(AROUND_MIN, AROUND_SHARE * (last - first) / 2);
    const range = figures[0].x_range;
    range.start = step === null ? first - 0.5 : Math.max(first - 0.5, step - around);
    range.end = step === null ? last + 0.5 : Math.min(last + 0.5, step + around);
  }

  function show(scroll) {
    const match = ASKED.exec(location.hash);
    const step = match ? Number(match[1]) : null;
    const known = step !== null && step >= first && step <= last;
    said.textContent = step === null ? "" : known ? "The address of this page now leads to this step." : `The curves go from step ${first.toLocaleString("en")} to ${last.toLocaleString("en")}.`;
    if (step !== null) field.value = step;
    inStatic(known ? step : null);
    inZoom(known ? step : null);
    if (step === null || !scroll) return;
    curves.open = true;
    curves.scrollIntoView();
  }

  field.addEventListener("change", () => { location.hash = field.value ? `#step-${field.value}` : ""; });
  window.addEventListener("hashchange", () => show(true));
  document.addEventListener("steadytrain-drawn", () => show(false));
  show(true);
})();
