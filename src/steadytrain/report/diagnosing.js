// The search for the cause on a served page: starts and stops it, and fills the table while trials end. Text only ever
// becomes text nodes.
(() => {
  "use strict";
  const EVERY_MS = 1000, QUIET_MS = 5000;
  const panel = document.getElementById("diagnosing"), at = (id) => document.getElementById(`diagnosing-${id}`);
  const start = at("start"), stop = at("stop"), introduction = at("said").textContent;
  let running = false, timer = null;

  function say(text, failed) {
    at("said").textContent = text;
    at("said").className = failed ? "failed" : "small";
  }

  function row(trial) {
    const made = document.createElement("tr");
    const effect = trial.effect === "removed" ? "✓ removed" : trial.effect || "not judged yet";
    const seen = [trial.seen, trial.why].filter(Boolean).join("; ");
    for (const [text, label, kind] of [[trial.trial, "", "mono"], [effect, "the symptom", trial.effect === "removed" ? "proven" : ""], [seen, "what was seen", ""]]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      cell.className = kind;
      if (label) cell.dataset.label = label;
      made.append(cell);
    }
    return made;
  }

  function show(known) {
    const ended = running && !known.running;
    running = known.running;
    const done = known.trials.filter((one) => one.runs).length;
    if (running) say(`Running${known.ours ? "" : " elsewhere"}: ${known.doing || (done ? "ending" : "starting")} (${done} ${done === 1 ? "trial" : "trials"} finished)`);
    else if (known.end) say(known.end, true);
    else if (known.answer) say(`${known.answer.certainty}: ${known.answer.headline}`);
    else say(introduction);
    if (start) { start.hidden = running; stop.hidden = !(running && known.ours); }
    at("trials").hidden = !(running || ended) || !known.trials.length;
    at("trials").querySelector("tbody").replaceChildren(...known.trials.map(row));
    if (ended && known.answer && !known.end) showCause();
  }

  // The page is made again, with the cause at its top.
  function showCause() {
    history.scrollRestoration = "manual";
    location.reload();
  }

  async function ask(what, method) {
    clearTimeout(timer);
    try {
      const headers = method === "POST" ? { "X-Steadytrain-Token": panel.dataset.token } : {};
      const answer = await fetch(`${panel.dataset.address}/${what}`, { method, headers });
      if (!answer.ok) throw new Error(answer.status === 403 ? "load the page again" : `status ${answer.status}`);
      const known = await answer.json();
      if (known.refused) say(known.refused, true);
      else show(known);
      timer = setTimeout(look, running ? EVERY_MS : QUIET_MS);
    } catch (error) {
      say(`the server does not answer (${error.message})`, true);
      timer = setTimeout(look, QUIET_MS);
    }
  }

  const look = () => (document.hidden ? (timer = setTimeout(look, QUIET_MS)) : ask("diagnosis.json", "GET"));
  if (start) {
    start.addEventListener("click", () => ask("diagnose", "POST"));
    stop.addEventListener("click", () => { say("stopping"); ask("stop", "POST"); });
  }
  look();
})();
