// The list of runs, read again while the page is looked at. Text from runs only ever becomes text nodes.
"use strict";
const EVERY_MS = 3000;
const SIGNS = { running: "▶", finished: "✓", stopped: "■", failed: "✗", killed: "✗" };
const chosen = { a: "", b: "" };

function cell(text, kind, label) {
  const made = document.createElement("td");
  made.textContent = text;
  if (kind) made.className = kind;
  if (label) made.dataset.label = label;
  return made;
}

function choice(side, folder) {
  const made = document.createElement("input");
  made.type = "radio";
  made.name = side;
  made.value = folder;
  made.checked = chosen[side] === folder;
  made.setAttribute("aria-label", `${side.toUpperCase()}: ${folder}`);
  made.addEventListener("change", () => { chosen[side] = folder; });
  const place = cell("", "", side.toUpperCase());
  place.append(made);
  return place;
}

function row(run) {
  const made = document.createElement("tr");
  const good = run.state === "finished" || run.state === "running";
  const link = document.createElement("a");
  link.href = `/run/${encodeURIComponent(run.folder)}`;
  link.textContent = run.name === run.folder ? run.name : `${run.name} (${run.folder})`;
  const named = cell("");
  named.append(link);
  made.append(
    cell(`${SIGNS[run.state] || "?"} ${run.state}`, good ? "" : "critical"),
    cell(run.worst || "none seen", run.worst === "critical" ? "critical" : run.worst === "warning" ? "warning" : ""),
    named,
    cell(run.steps.toLocaleString("en"), "number", "steps"),
    cell(String(run.incidents), "number", "incidents"),
    cell(run.started, "", ""),
    choice("a", run.folder),
    choice("b", run.folder),
  );
  return made;
}

function show(runs) {
  const held = document.activeElement, body = document.querySelector("#runs tbody");
  const key = body.contains(held) ? [held.name, held.value, held.getAttribute("href")].join() : "";
  body.replaceChildren(...runs.map(row));
  if (key) [...body.querySelectorAll("a, input")].find((one) => [one.name, one.value, one.getAttribute("href")].join() === key)?.focus();
}

async function read() {
  const told = document.getElementById("told");
  try {
    const answer = await fetch("/runs.json");
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const listed = await answer.json();
    const running = listed.runs.filter((run) => run.state === "running").length;
    const grave = listed.runs.filter((run) => run.worst === "critical").length;
    const more = listed.total > listed.runs.length ? `, the newest ${listed.runs.length} listed` : "";
    told.textContent = listed.total
      ? `${listed.total} runs, ${running} running, ${grave} with a critical symptom${more}`
      : "no runs yet: record one with steadytrain run SCRIPT";
    show(listed.runs);
    document.getElementById("unreadable").replaceChildren(
      ...listed.unreadable.map((why) => Object.assign(document.createElement("li"), { textContent: `not listed: ${why}` })),
    );
  } catch (error) {
    told.textContent = `the server does not answer (${error.message}); is steadytrain ui still running?`;
  }
}

async function loop() {
  if (!document.hidden) await read();
  setTimeout(loop, EVERY_MS);
}
loop();
