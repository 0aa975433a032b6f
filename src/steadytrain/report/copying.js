// Copies the report as Markdown. Where a browser forbids it, the text is shown and marked instead.
(() => {
  "use strict";
  const button = document.getElementById("copy"), area = document.getElementById("markdown");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(area.value);
      button.textContent = "Copied";
    } catch {
      area.hidden = false;
      area.select();
    }
  });
})();
